// SPDX-License-Identifier: Apache-2.0
// All runs of the project.
import { getRuns, type Run } from "./api";
import { setParams, useAddress } from "./address";
import { age, command, count, duration, metric } from "./format";
import { useLive } from "./live";
import { Failure, Progress, State, useNow } from "./parts";

const COLUMNS: { key: string; title: string; sort?: (r: Run) => number | string; right?: boolean }[] = [
  { key: "run", title: "Run", sort: (r) => r.run, right: true },
  { key: "name", title: "Name", sort: (r) => r.name ?? "" },
  { key: "state", title: "State", sort: (r) => r.state },
  { key: "progress", title: "Trials", sort: (r) => r.done },
  { key: "best", title: "Best", sort: (r) => r.best_value ?? -Infinity },
  { key: "created", title: "Started", sort: (r) => r.created },
  { key: "time", title: "Time", sort: elapsed, right: true },
  { key: "command", title: "Command" },
];

function elapsed(r: Run): number {
  return (r.ended ? Date.parse(r.ended) : Date.now()) - Date.parse(r.created);
}

/** Every word of the filter is somewhere in the row. */
function matches(r: Run, filter: string): boolean {
  const text = [r.run, r.name, r.state, r.metric, r.git, command(r.command)].join(" ").toLowerCase();
  return filter
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}

function sorted(runs: Run[], sort: string): Run[] {
  const column = COLUMNS.find((c) => c.key === sort.replace(/^-/, ""));
  const key = column?.sort ?? ((r: Run) => r.run);
  const sign = sort.startsWith("-") ? -1 : 1;
  return [...runs].sort((a, b) => {
    const x = key(a);
    const y = key(b);
    return (x < y ? -1 : x > y ? 1 : b.run - a.run) * sign;
  });
}

function Row({ r, now }: { r: Run; now: number }) {
  return (
    <tr>
      <td class="right">
        <a href={`/runs/${r.run}`}>{r.run}</a>
      </td>
      <td>{r.name && <a href={`/runs/${r.run}`}>{r.name}</a>}</td>
      <td>
        <State state={r.state} />
      </td>
      <td>
        <Progress run={r} />
      </td>
      <td>{r.best_trial ? `${r.metric}=${metric(r.best_value)}` : (r.metric ?? "")}</td>
      <td title={r.created}>{age(r.created, now)}</td>
      <td class="right">{duration((r.ended ? Date.parse(r.ended) : now) - Date.parse(r.created))}</td>
      <td class="command">{command(r.command)}</td>
    </tr>
  );
}

export function Runs() {
  const { params } = useAddress();
  const now = useNow();
  const { value, error } = useLive("runs", getRuns);
  const filter = params.get("filter") ?? "";
  const sort = params.get("sort") ?? "-run";
  const all = value?.runs ?? [];
  const shown = sorted(all.filter((r) => matches(r, filter)), sort);
  return (
    <main>
      <header class="bar">
        <h1>Runs</h1>
        <input
          type="search"
          placeholder="Filter by name, state, command…"
          aria-label="Filter runs"
          value={filter}
          onInput={(e) => setParams({ filter: e.currentTarget.value || null })}
        />
        <span class="dim">{filter ? `${count(shown.length)} of ${count(all.length)}` : count(all.length)}</span>
      </header>
      <Failure error={error} />
      {value && all.length === 0 ? (
        <p>
          This project has no runs yet; <code>hopyard run --help</code> shows how to start one.
        </p>
      ) : (
        <div class="scroll">
          <table>
            <thead>
              <tr>
                {COLUMNS.map((c) => (
                  <th key={c.key} class={c.right ? "right" : ""} aria-sort={direction(sort, c.key)}>
                    {c.sort ? (
                      <button onClick={() => setParams({ sort: sort === `-${c.key}` ? c.key : `-${c.key}` })}>
                        {c.title}
                      </button>
                    ) : (
                      c.title
                    )}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {shown.map((r) => (
                <Row key={r.run} r={r} now={now} />
              ))}
            </tbody>
          </table>
        </div>
      )}
    </main>
  );
}

function direction(sort: string, key: string): "ascending" | "descending" | "none" {
  return sort === key ? "ascending" : sort === `-${key}` ? "descending" : "none";
}
