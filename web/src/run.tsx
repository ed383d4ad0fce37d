// SPDX-License-Identifier: Apache-2.0
// One run: what it is, the best value over its trials, and its trials.
import { useState } from "preact/hooks";
import { type Columns, getColumns, getRun, getTrials, type Run as RunRow, stopRun, type Trial } from "./api";
import { setParams, useAddress } from "./address";
import { AgainstParameter, BestSoFar } from "./chart";
import { command, count, duration, metric, value } from "./format";
import { useLive } from "./live";
import { Fact, Failure, Progress, State, useNow } from "./parts";

const PAGE = 100;

function Stop({ run }: { run: RunRow }) {
  const [asks, setAsks] = useState(false);
  const [error, setError] = useState<Error>();
  if (run.state !== "running" && run.state !== "waiting") return null;
  const stop = () => {
    setAsks(false);
    stopRun(run.run).catch(setError);
  };
  return (
    <span class="actions">
      {asks ? (
        <>
          Stop its {count(run.running)} running trials?{" "}
          <button class="danger" onClick={stop}>
            Stop the run
          </button>{" "}
          <button onClick={() => setAsks(false)}>Keep it</button>
        </>
      ) : (
        <button onClick={() => setAsks(true)}>Stop…</button>
      )}
      <Failure error={error} />
    </span>
  );
}

function Facts({ run, now }: { run: RunRow; now: number }) {
  const versions = Object.entries(run.versions ?? {})
    .map(([name, version]) => `${name} ${version}`)
    .join(", ");
  return (
    <dl class="facts">
      <Fact name="Command">
        <code>{command(run.command)}</code>
      </Fact>
      <Fact name="Trials">
        <Progress run={run} />
      </Fact>
      <Fact name="Best">{run.best_trial && `${run.metric}=${metric(run.best_value)} in trial ${run.best_trial}`}</Fact>
      <Fact name="Time">
        {duration((run.ended ? Date.parse(run.ended) : now) - Date.parse(run.created))}, started{" "}
        {new Date(run.created).toLocaleString()}
      </Fact>
      <Fact name="Message">{run.message}</Fact>
      <Fact name="Logs">{run.logdir && <code>{run.logdir}</code>}</Fact>
      <Fact name="Commit">{run.git}</Fact>
      <Fact name="Seed">{String(run.seed)}</Fact>
      <Fact name="Versions">{versions}</Fact>
    </dl>
  );
}

function TrialTable({ run, trials, offset, total }: { run: RunRow; trials: Trial[]; offset: number; total: number }) {
  const names = [...new Set(trials.flatMap((t) => Object.keys(t.params)))];
  const page = (to: number) => setParams({ offset: to > 0 ? String(to) : null });
  return (
    <>
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <th class="right">Trial</th>
              <th>State</th>
              {run.metric && <th class="right">{run.metric}</th>}
              {names.map((name) => (
                <th key={name} class="right">
                  {name}
                </th>
              ))}
              <th class="right">Time</th>
              <th>Message</th>
            </tr>
          </thead>
          <tbody>
            {trials.map((t) => (
              <tr key={t.number} class={t.number === run.best_trial ? "best" : ""}>
                <td class="right">
                  <a href={`/runs/${run.run}/trials/${t.number}`}>{t.number}</a>
                </td>
                <td>
                  <State state={t.state} />
                </td>
                {run.metric && <td class="right">{metric(t.value)}</td>}
                {names.map((name) => (
                  <td key={name} class="right">
                    {name in t.params ? value(t.params[name]) : ""}
                  </td>
                ))}
                <td class="right">{t.elapsed_ms === undefined ? "" : duration(t.elapsed_ms)}</td>
                <td class="command">{t.message}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {total > PAGE && (
        <nav class="pages" aria-label="Pages of trials">
          <button disabled={offset === 0} onClick={() => page(offset - PAGE)}>
            Previous
          </button>
          <span>
            {count(offset + 1)} to {count(Math.min(offset + PAGE, total))} of {count(total)}
          </span>
          <button disabled={offset + PAGE >= total} onClick={() => page(offset + PAGE)}>
            Next
          </button>
        </nav>
      )}
    </>
  );
}

function Parameters({ run, all }: { run: RunRow; all: Columns }) {
  const { params } = useAddress();
  const names = Object.keys(all.params);
  const name = names.find((n) => n === params.get("against")) ?? names[0];
  const isLog = params.get("axis") === "log";
  if (name === undefined) return null;
  return (
    <section>
      <header class="bar">
        <h2>{run.metric} against</h2>
        <select aria-label="Hyperparameter" value={name} onChange={(e) => setParams({ against: e.currentTarget.value })}>
          {names.map((n) => (
            <option key={n}>{n}</option>
          ))}
        </select>
        <label>
          <input type="checkbox" checked={isLog} onChange={(e) => setParams({ axis: e.currentTarget.checked ? "log" : null })} />{" "}
          logarithmic
        </label>
      </header>
      <AgainstParameter run={run} all={all} name={name} isLog={isLog} />
    </section>
  );
}

export function Run({ id }: { id: string }) {
  const { params } = useAddress();
  const now = useNow();
  const sort = params.get("sort") === "number" ? "number" : "value";
  const offset = Math.max(0, Number(params.get("offset") ?? 0) || 0);
  const run = useLive(`run ${id}`, () => getRun(id));
  const trials = useLive(`trials ${id} ${sort} ${offset}`, () => getTrials(id, sort, offset, PAGE));
  const all = useLive(`columns ${id}`, () => getColumns(id));
  const r = run.value;
  return (
    <main>
      <header class="bar">
        <h1>
          Run {r?.run ?? id} {r?.name}
        </h1>
        {r && <State state={r.state} />}
        {r && <Stop run={r} />}
      </header>
      <Failure error={run.error ?? trials.error} />
      {r && <Facts run={r} now={now} />}
      {r?.metric && all.value && <BestSoFar run={r} all={all.value} />}
      {r?.metric && all.value && <Parameters run={r} all={all.value} />}
      {r && trials.value && (
        <section>
          <header class="bar">
            <h2>Trials</h2>
            <label>
              Sort by{" "}
              <select
                value={sort}
                onChange={(e) => setParams({ sort: e.currentTarget.value === "value" ? null : "number", offset: null })}
              >
                <option value="value">best first</option>
                <option value="number">number</option>
              </select>
            </label>
          </header>
          <TrialTable run={r} trials={trials.value.trials} offset={offset} total={trials.value.count} />
        </section>
      )}
    </main>
  );
}
