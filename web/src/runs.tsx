// SPDX-License-Identifier: Apache-2.0
// All runs of the project.
import { useState } from "preact/hooks";
import { setParams, to, useAddress } from "./address";
import { getRuns, type Run } from "./api";
import { age, command, count, duration, kindOf, metric } from "./format";
import { Tags } from "./labels";
import { useLive } from "./live";
import { NotificationSwitch } from "./notifications";
import { Failure, Progress, Scroll, State, useNow, useTitle } from "./parts";
import { RunActions } from "./run_actions";
import { StartRun } from "./start";

interface Column {
  key: string;
  title: string;
  sort?: (r: Run) => number | string;
  right?: boolean;
}

const COLUMNS: Column[] = [
  { key: "run", title: "Run", sort: (r) => r.run, right: true },
  { key: "name", title: "Name", sort: (r) => r.name ?? "" },
  { key: "state", title: "State", sort: (r) => r.state },
  { key: "progress", title: "Trials", sort: (r) => r.done },
  { key: "best", title: "Best", sort: (r) => r.best_value ?? -Infinity },
  { key: "kind", title: "Kind", sort: kindOf },
  { key: "engine", title: "Engine", sort: (r) => r.engine ?? "" },
  { key: "created", title: "Started", sort: (r) => r.created },
  { key: "time", title: "Time", sort: elapsed, right: true },
  { key: "command", title: "Command" },
];

function elapsed(r: Run): number {
  return (r.ended ? Date.parse(r.ended) : Date.now()) - Date.parse(r.created);
}

/** Every word of the filter is somewhere in the row. */
function matches(r: Run, filter: string): boolean {
  const text = [r.run, r.name, r.state, r.metric, r.git, kindOf(r), r.engine, r.note, ...r.tags, command(r.command)]
    .join(" ")
    .toLowerCase();
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

interface RowProps {
  r: Run;
  now: number;
  isChosen: boolean;
  choose: (run: number, isChosen: boolean) => void;
}

function Row({ r, now, isChosen, choose }: RowProps) {
  return (
    <tr>
      <td>
        <input
          type="checkbox"
          aria-label={`Choose run ${r.run}`}
          checked={isChosen}
          onChange={(e) => choose(r.run, e.currentTarget.checked)}
        />
      </td>
      <td class="right">
        <a href={to(`runs/${r.run}`)}>{r.run}</a>
      </td>
      <td title={r.note ?? undefined}>
        {r.name && <a href={to(`runs/${r.run}`)}>{r.name}</a>} <Tags tags={r.tags} />
      </td>
      <td>
        <State state={r.state} />
      </td>
      <td>
        <Progress run={r} />
      </td>
      <td>{r.best_trial ? `${r.metric}=${metric(r.best_value)}` : ""}</td>
      <td>{kindOf(r)}</td>
      <td>{r.engine}</td>
      <td title={r.created}>{age(r.created, now)}</td>
      <td class="right">{duration((r.ended ? Date.parse(r.ended) : now) - Date.parse(r.created))}</td>
      <td class="command">{command(r.command)}</td>
    </tr>
  );
}

function Head({ sort }: { sort: string }) {
  return (
    <thead>
      <tr>
        <th>
          <span class="visually-hidden">Chosen</span>
        </th>
        {COLUMNS.map((c) => (
          <th key={c.key} class={c.right ? "right" : ""} aria-sort={direction(sort, c.key)}>
            {c.sort ? (
              <button onClick={() => setParams({ sort: sort === `-${c.key}` ? c.key : `-${c.key}` })}>{c.title}</button>
            ) : (
              c.title
            )}
          </th>
        ))}
      </tr>
    </thead>
  );
}

/** What can be done with the runs that are chosen. */
function Chosen({ runs }: { runs: Run[] }) {
  const [first] = runs;
  const list = runs.map((r) => r.run).join(",");
  if (!first) return null;
  return (
    <div class="bar chosen" role="group" aria-label="Chosen runs">
      <strong>{runs.length === 1 ? `Run ${first.run}` : `${count(runs.length)} runs`}</strong>
      {runs.length > 1 && <a href={to(`compare?runs=${list}`)}>Compare</a>}
      <a href={to(`tensorboard?runs=${list}`)}>TensorBoard</a>
      {runs.length === 1 && <RunActions run={first} />}
    </div>
  );
}

export function Runs() {
  useTitle("Runs");
  const { params } = useAddress();
  const now = useNow();
  const { value, error } = useLive("runs", getRuns);
  const [isStarting, setStarting] = useState(false);
  const filter = params.get("filter") ?? "";
  const sort = params.get("sort") ?? "-run";
  const chosen = new Set((params.get("chosen") ?? "").split(",").filter(Boolean).map(Number));
  const all = value?.runs ?? [];
  const shown = sorted(all.filter((r) => matches(r, filter)), sort);
  const choose = (run: number, isChosen: boolean) => {
    if (isChosen) chosen.add(run);
    else chosen.delete(run);
    setParams({ chosen: [...chosen].join(",") || null });
  };
  return (
    <main>
      <header class="bar">
        <h1>Runs</h1>
        <input
          type="search"
          placeholder="Filter by name, state, tag, command…"
          aria-label="Filter runs"
          value={filter}
          onInput={(e) => setParams({ filter: e.currentTarget.value || null })}
        />
        <span class="dim">{filter ? `${count(shown.length)} of ${count(all.length)}` : count(all.length)}</span>
        <button class="primary" onClick={() => setStarting(true)}>
          Start a run…
        </button>
        <NotificationSwitch />
      </header>
      {isStarting && <StartRun onClose={() => setStarting(false)} />}
      <Failure error={error} />
      <Chosen runs={all.filter((r) => chosen.has(r.run))} />
      {value && all.length === 0 ? (
        <p>
          This project has no runs yet; <code>hopyard run --help</code> shows how to start one.
        </p>
      ) : (
        <Scroll label="Runs">
          <table>
            <Head sort={sort} />
            <tbody>
              {shown.map((r) => (
                <Row key={r.run} r={r} now={now} isChosen={chosen.has(r.run)} choose={choose} />
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </main>
  );
}

function direction(sort: string, key: string): "ascending" | "descending" | "none" {
  return sort === key ? "ascending" : sort === `-${key}` ? "descending" : "none";
}
