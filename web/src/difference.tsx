// SPDX-License-Identifier: Apache-2.0
// Picked trials side by side, with differences marked.
import { setParams, to } from "./address";
import type { Run } from "./api";
import { capital, duration, unitName, unitOf } from "./format";
import { Scroll, State } from "./parts";
import { readPicked, writePicked } from "./selection";
import { allKeys } from "./trial_table";
import { cellText, type Column, type Trials } from "./trials";

interface Props {
  run: Run;
  trials: Trials;
  params: URLSearchParams;
}

function cell(column: Column, i: number) {
  const text = cellText(column, i);
  if (column.key === "state") return <State state={text} />;
  if ((column.key === "time" || column.key === "start") && text) return duration(column.numbers[i]! * 1000);
  return text;
}

export function Difference({ run, trials, params }: Props) {
  const picked = readPicked(params).filter((n) => trials.find(n) >= 0);
  const indexes = picked.map((n) => trials.find(n));
  const onlyDifferent = params.get("same") === "0";
  const rows = allKeys(trials, run)
    .filter((key) => key !== "number")
    .map((key) => {
      const column = trials.column(key, run);
      return { column, differs: new Set(indexes.map((i) => cellText(column, i))).size > 1 };
    })
    .filter(({ differs }) => differs || !onlyDifferent);
  if (picked.length === 0)
    return (
      <p>
        No {unitOf(run)} is picked yet: use the check boxes of the{" "}
        <button onClick={() => setParams({ tab: "trials" })}>{capital(unitOf(run))}s</button>.
      </p>
    );
  return (
    <section>
      <header class="bar">
        <h2>Side by side</h2>
        <label>
          <input type="checkbox" checked={onlyDifferent} onChange={(e) => setParams({ same: e.currentTarget.checked ? "0" : null })} />{" "}
          only differences
        </label>
        <button onClick={() => setParams({ tab: "curves" })}>Show curves</button>
      </header>
      <Scroll label={`Picked ${unitOf(run)}s side by side`}>
        <table class="sides">
          <thead>
            <tr>
              <td />
              {picked.map((n) => (
                <th key={n} scope="col">
                  <a href={to(`runs/${run.run}/trials/${n}`)}>{capital(unitName(run, n))}</a>{" "}
                  <button class="remove" aria-label={`Remove ${unitName(run, n)}`} onClick={() => writePicked(picked.filter((k) => k !== n))}>
                    ×
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map(({ column, differs }) => (
              <tr key={column.key} class={differs ? "differs" : ""}>
                <th scope="row">{column.title}</th>
                {indexes.map((i) => (
                  <td key={i}>{cell(column, i)}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </section>
  );
}
