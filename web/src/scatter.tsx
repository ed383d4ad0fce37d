// SPDX-License-Identifier: Apache-2.0
// The metric against each hyperparameter.
import { useMemo, useRef } from "preact/hooks";
import type uPlot from "uplot";
import { setParams } from "./address";
import type { Run } from "./api";
import { axis, color, LogChoice, logAxis, logScale, Plot, pointSeries, thin } from "./chart";
import { pointPlugin, type Points } from "./points";
import { canBeLog, isLogAxis, toggled } from "./scale";
import type { Column, Trials } from "./trials";

const POINTS = 2000; // in one small chart

interface Drawn {
  data: [number[], number[]];
  rows: number[]; // the index of the trial of each point
}

function points(x: Column, y: Column, rows: Uint32Array): Drawn {
  const both = thin([...rows].filter((i) => !Number.isNaN(x.numbers[i]!) && !Number.isNaN(y.numbers[i]!)), POINTS);
  both.sort((a, b) => x.numbers[a]! - x.numbers[b]!);
  return { data: [both.map((i) => x.numbers[i]!), both.map((i) => y.numbers[i]!)], rows: both };
}

interface PanelProps {
  run: Run;
  trials: Trials;
  rows: Uint32Array;
  name: string;
  log: string | null;
}

function ScatterPanel({ run, trials, rows, name, log }: PanelProps) {
  const x = trials.column(`p:${name}`, run);
  const y = trials.column("value", run);
  const { data, rows: drawn } = useMemo(() => points(x, y, rows), [x, y, rows]);
  const latest = useRef<Points>({ run, trials, rows: drawn });
  latest.current = { run, trials, rows: drawn };
  const isLog = isLogAxis(run, x, log);
  const isLogY = isLogAxis(run, y, log);
  const { texts } = x;
  const last = texts ? texts.length - 1 : 0;
  const categories = {
    values: (_: uPlot, at: number[]) => at.map((i) => texts?.[i] ?? ""),
    splits: () => texts!.map((_, i) => i),
  };
  return (
    <figure>
      <figcaption class="bar">
        {name}
        {canBeLog(x) && (
          <label class="dim">
            <input type="checkbox" aria-label={`${name} logarithmic`} checked={isLog} onChange={() => setParams({ log: toggled(log, x.key) })} />{" "}
            log
          </label>
        )}
      </figcaption>
      <Plot
        data={data}
        recreateKey={`${isLog} ${isLogY} ${texts?.join("\n")}`}
        label={`${run.metric} against ${name}`}
        options={(width) => ({
          width,
          height: 180,
          legend: { show: false },
          cursor: { y: false },
          scales: { x: { time: false, ...(isLog ? logScale : texts ? { range: [-0.5, last + 0.5] } : {}) }, y: isLogY ? logScale : {} },
          axes: [
            { ...axis(), ...(texts ? categories : isLog ? logAxis : {}), size: 32 },
            { ...axis(), ...(isLogY ? logAxis : {}), size: 56 },
          ],
          series: [{}, pointSeries(run.metric ?? "value", color("accent"), data[0].length > 500 ? 3 : 5)],
          plugins: [pointPlugin(() => latest.current)],
        })}
      />
    </figure>
  );
}

interface Props {
  run: Run;
  trials: Trials;
  rows: Uint32Array;
  params: URLSearchParams;
}

export function Scatter({ run, trials, rows, params }: Props) {
  const names = trials.paramNames;
  const chosen = names.includes(params.get("against") ?? "") ? params.get("against")! : "";
  const value = trials.column("value", run);
  const log = params.get("log");
  if (names.length === 0) return null;
  return (
    <section>
      <header class="bar">
        <h2>{run.metric} against</h2>
        <select
          aria-label="Hyperparameter"
          value={chosen}
          onChange={(e) => setParams({ against: e.currentTarget.value || null })}
        >
          <option value="">every hyperparameter</option>
          {names.map((n) => (
            <option key={n}>{n}</option>
          ))}
        </select>
        {canBeLog(value) && (
          <LogChoice
            label={`${run.metric} logarithmic`}
            isLog={isLogAxis(run, value, log)}
            onChange={() => setParams({ log: toggled(log, "value") })}
          />
        )}
      </header>
      <div class={chosen ? "" : "multiples"}>
        {(chosen ? [chosen] : names.slice(0, 24)).map((name) => (
          <ScatterPanel key={name} run={run} trials={trials} rows={rows} name={name} log={log} />
        ))}
      </div>
    </section>
  );
}
