// SPDX-License-Identifier: Apache-2.0
// The controls of a selection of trials.
import { useMemo } from "preact/hooks";
import { setParams } from "./address";
import type { Run } from "./api";
import { count, metric, unitOf, units } from "./format";
import { type Brush, type Selection, setBrush, unknownNames, writeBrushes } from "./selection";
import type { Trials } from "./trials";

function brushText(brush: Brush): string {
  return "texts" in brush ? brush.texts.join(", ") : `${metric(brush.low)} … ${metric(brush.high)}`;
}

interface Props {
  run: Run;
  trials: Trials;
  selection: Selection;
  shown: number;
}

export function Filters({ run, trials, selection, shown }: Props) {
  const { filter, best, brushes } = selection;
  const unknown = useMemo(() => unknownNames(trials, run, filter), [trials, run.metric, filter]);
  return (
    <div class="bar filters">
      <input
        type="search"
        placeholder="Filter: relu, lr<0.01, state=failed…"
        aria-label={`Filter ${unitOf(run)}s`}
        value={filter}
        onInput={(e) => setParams({ filter: e.currentTarget.value || null })}
      />
      {unknown.length > 0 && <span class="bad">no column {unknown.map((name) => `'${name}'`).join(", ")}</span>}
      {run.metric && (
        <button aria-pressed={best === 10} onClick={() => setParams({ best: best === 10 ? null : "10" })}>
          Best 10%
        </button>
      )}
      {[...brushes].map(([key, brush]) => (
        <button
          key={key}
          class="chip"
          title="Remove this range"
          onClick={() => writeBrushes(setBrush(brushes, key, null))}
        >
          {trials.column(key, run).title}: {brushText(brush)} <span aria-hidden="true">×</span>
        </button>
      ))}
      <span class="dim" role="status">
        {shown === trials.count ? "" : `${count(shown)} of `}
        {units(run, trials.count)}
      </span>
    </div>
  );
}
