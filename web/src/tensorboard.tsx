// SPDX-License-Identifier: Apache-2.0
// TensorBoard for one run or several.
import { useState } from "preact/hooks";
import { getRuns, type Run, request } from "./api";
import { setParams, useAddress } from "./address";
import { AppFrame, AppLinks, type AppRow, useApp } from "./apps";
import { age, command, count, metric } from "./format";
import { useLive } from "./live";
import { Failure, Scroll, State, useNow, useTitle } from "./parts";

const RUNS_MAX = 20; // as the server allows

const startTensorBoard = (runs: string) => request<AppRow>(`/apps/tensorboard?runs=${runs}`, { method: "POST" });

function Row({ r, now, isChosen, onToggle }: { r: Run; now: number; isChosen: boolean; onToggle: () => void }) {
  return (
    <tr onClick={onToggle}>
      <td>
        <input
          type="checkbox"
          checked={isChosen}
          aria-label={`Run ${r.run}`}
          onClick={(e) => e.stopPropagation()}
          onChange={onToggle}
        />
      </td>
      <td class="right">{r.run}</td>
      <td>{r.name}</td>
      <td>
        <State state={r.state} />
      </td>
      <td>{r.best_trial ? `${r.metric}=${metric(r.best_value)}` : (r.metric ?? "")}</td>
      <td title={r.created}>{age(r.created, now)}</td>
      <td class="command">{command(r.command)}</td>
    </tr>
  );
}

/** Which runs to show; the newest is chosen at first. */
function Choice({ first }: { first: number[] }) {
  const { value, error } = useLive("runs", getRuns);
  const now = useNow();
  const [picked, setPicked] = useState<number[] | null>(first.length ? first : null);
  const all = value?.runs ?? [];
  const chosen = (picked ?? all.slice(0, 1).map((r) => r.run)).filter((run) => all.some((r) => r.run === run));
  const toggle = (run: number) =>
    setPicked(chosen.includes(run) ? chosen.filter((c) => c !== run) : [...chosen, run].sort((a, b) => a - b));
  const isTooMany = chosen.length > RUNS_MAX;
  if (value && all.length === 0) return <p>This project has no runs yet: TensorBoard has nothing to show.</p>;
  return (
    <>
      <Failure error={error} />
      <div class="bar">
        <button
          class="primary"
          disabled={chosen.length === 0 || isTooMany}
          onClick={() => setParams({ runs: chosen.join(","), choose: null })}
        >
          {chosen.length > 1 ? `Show ${count(chosen.length)} runs` : "Show the run"}
        </button>
        <span class="dim">{isTooMany ? `TensorBoard shows at most ${RUNS_MAX} runs.` : "Choose one run, or several to compare."}</span>
      </div>
      <Scroll label="Runs">
        <table class="choice">
          <thead>
            <tr>
              <td />
              <th class="right">Run</th>
              <th>Name</th>
              <th>State</th>
              <th>Best</th>
              <th>Started</th>
              <th>Command</th>
            </tr>
          </thead>
          <tbody>
            {all.map((r) => (
              <Row key={r.run} r={r} now={now} isChosen={chosen.includes(r.run)} onToggle={() => toggle(r.run)} />
            ))}
          </tbody>
        </table>
      </Scroll>
    </>
  );
}

function Board({ runs }: { runs: string }) {
  const [attempt, setAttempt] = useState(0);
  const state = useApp(`${runs} ${attempt}`, () => startTensorBoard(runs));
  const list = runs.split(",");
  return (
    <main class="framed">
      <header class="bar">
        <h1>TensorBoard</h1>
        <span class="dim">
          {list.length > 1 ? "runs" : "run"} {list.join(", ")}
        </span>
        <button onClick={() => setParams({ choose: "1" })}>Choose runs…</button>
        <AppLinks state={state} />
      </header>
      <AppFrame title="TensorBoard" state={state} onRestart={() => setAttempt(attempt + 1)} />
    </main>
  );
}

/** /tensorboard?runs=3,5 */
export function TensorBoard() {
  useTitle("TensorBoard");
  const { params } = useAddress();
  const runs = params.get("runs") ?? "";
  const isValid = /^[0-9]+(,[0-9]+)*$/.test(runs);
  if (isValid && !params.has("choose")) return <Board key={runs} runs={runs} />;
  return (
    <main>
      <header class="bar">
        <h1>TensorBoard</h1>
      </header>
      <Choice first={isValid ? runs.split(",").map(Number) : []} />
    </main>
  );
}
