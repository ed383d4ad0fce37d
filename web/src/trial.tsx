// SPDX-License-Identifier: Apache-2.0
// One trial: its hyperparameters, reported values, attempts and output.
import { useMemo, useState } from "preact/hooks";
import { setParams, to, useAddress } from "./address";
import { type Attempt, getRun, getTrial, type Label, type Run, type TrialDetails } from "./api";
import { CurveChart } from "./chart";
import { TrialFiles } from "./files";
import { capital, command, duration, metric, size, unitName, value } from "./format";
import { EditTrial, Tags } from "./labels";
import { useLive } from "./live";
import { Log } from "./log";
import { Copy, Fact, Failure, Scroll, State, useTitle } from "./parts";
import { Usage } from "./usage";

function Attempts({ attempts }: { attempts: Attempt[] }) {
  return (
    <section>
      <h2>Attempts</h2>
      <Scroll label="Attempts">
        <table>
          <thead>
            <tr>
              <th class="right">Attempt</th>
              <th>State</th>
              <th>Agent</th>
              <th class="right">Exit status</th>
              <th class="right">Time</th>
              <th class="right">CPU</th>
              <th class="right">Peak memory</th>
              <th>Message</th>
            </tr>
          </thead>
          <tbody>
            {attempts.map((a) => (
              <tr key={a.attempt}>
                <td class="right">{a.attempt}</td>
                <td>
                  <State state={a.state} />
                </td>
                <td>{a.agent === a.host || !a.host ? a.agent : `${a.agent} on ${a.host}`}</td>
                <td class="right">{a.ended ? a.exit_code : ""}</td>
                <td class="right">{duration((a.ended || Date.now()) - a.started)}</td>
                <td class="right">{a.ended ? duration(a.cpu_ms) : ""}</td>
                <td class="right">{a.peak_memory ? size(a.peak_memory) : ""}</td>
                <td class="command">{a.message}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      {attempts
        .filter((a) => a.detail)
        .map((a) => (
          <details key={a.attempt}>
            <summary>Why attempt {a.attempt} failed</summary>
            <pre class="log" tabIndex={0} aria-label={`Why attempt ${a.attempt} failed`}>
              {a.detail}
            </pre>
          </details>
        ))}
    </section>
  );
}

/** A value as the trial got it, with all digits. */
const exact = (x: unknown) => (typeof x === "string" ? x : JSON.stringify(x));

/** As Python writes it. */
const literal = (x: unknown) => (x === null ? "None" : x === true ? "True" : x === false ? "False" : JSON.stringify(x));

/** HOPYARD_SEED of a trial. */
const seedOf = (run: Run, trial: number) => run.seed + trial;

/** "fn(lr=0.1)" of a function, by its title. */
const call = (title: string, params: Record<string, unknown>) =>
  `${title.split("(")[0]}(${Object.entries(params).map(([n, x]) => `${n}=${literal(x)}`).join(", ")})`;

/** What runs a trial again, with its values and its seed; of a rank, the whole training. */
function againLine(run: Run, trial: TrialDetails): string | null {
  const words = run.command;
  if (typeof words === "string") return run.ranks ? null : call(words, trial.params);
  const goal = run.metric ? [run.maximize ? "--max" : "--min", run.metric] : [];
  const isElsewhere = run.cwd && run.cwd !== run.project;
  const options = (run.options ?? []).flatMap(([name, text]) => [`--${name}`, text]);
  if (isElsewhere && run.project) options.push("--project", run.project);
  const inDirectory = (line: string) => (isElsewhere ? `${command(["cd", run.cwd!])} && ${line}` : line);
  if (run.ranks) {
    const ranks = ["-np", String(run.ranks), "--seed", String(run.seed)];
    return inDirectory(command(["hopyard", "train", ...ranks, ...goal, ...options, "--", ...words]));
  }
  const seed = ["--seed", String(seedOf(run, trial.number) - 1)]; // it will be trial 1
  const values = Object.entries(trial.params).flatMap(([name, x]) => ["--grid", `${name}=${JSON.stringify([x])}`]);
  return inDirectory(command(["hopyard", "run", ...seed, ...values, ...goal, ...options, "--", ...words]));
}

function Facts({ run, trial, label }: { run?: Run; trial: TrialDetails; label: Label }) {
  const again = run && againLine(run, trial);
  const singles = Object.entries(trial.metrics).filter(([name, curve]) => curve.value.length === 1 && name !== run?.metric);
  const versions = Object.entries(run?.versions ?? {})
    .map(([name, version]) => `${name} ${version}`)
    .join(", ");
  return (
    <dl class="facts">
      <Fact name={run?.metric ?? "Value"}>{metric(trial.value)}</Fact>
      {singles.map(([name, curve]) => (
        <Fact key={name} name={name}>
          {metric(curve.value[0])}
        </Fact>
      ))}
      {Object.entries(trial.params).map(([name, x]) => (
        <Fact key={name} name={name}>
          {value(x)}
        </Fact>
      ))}
      <Fact name="Note">{label.note && <span class="note">{label.note}</span>}</Fact>
      <Fact name="Message">{trial.message}</Fact>
      <Fact name="Commit">{run?.git}</Fact>
      <Fact name="Seed">{run && String(seedOf(run, trial.number))}</Fact>
      <Fact name="Versions">{versions}</Fact>
      <Fact name="Directory">{run?.logdir && <Copy text={`${run.logdir}/${trial.dir}`} />}</Fact>
      <Fact name="Run again">{again && <Copy text={again} />}</Fact>
    </dl>
  );
}

const nameOf = (run: Run, trial: TrialDetails) =>
  run.kind === "cluster" && trial.params.node ? `node ${exact(trial.params.node)}` : unitName(run, trial.number);

type Stream = "stdout" | "stderr";

/** The stream that is shown unless the address has one: stderr if it may say why the trial failed. */
const usualStream = (trial?: TrialDetails): Stream => (trial?.state === "failed" && trial.output.stderr > 0 ? "stderr" : "stdout");

export function Trial({ run, id }: { run: string; id: string }) {
  const { params } = useAddress();
  const { value: trial, error } = useLive(`trial ${run} ${id}`, () => getTrial(run, id));
  const { value: row } = useLive(`run ${run}`, () => getRun(run));
  useTitle(`${trial && row ? capital(nameOf(row, trial)) : `Trial ${id}`} of run ${run}`);
  const usual = useMemo(() => usualStream(trial), [run, id, !trial]); // a trial that fails while it is shown stays as it is
  const asked = params.get("stream");
  const stream: Stream = asked === "stdout" || asked === "stderr" ? asked : usual;
  const [errorOffset, setErrorOffset] = useState<number | null>(null); // where the log of the other stream was opened
  const other = stream === "stdout" ? "stderr" : "stdout";
  const label = row?.trial_labels?.[id] ?? { tags: [], note: null };
  const open = (chosen: string, offset: number | null) => {
    setErrorOffset(offset);
    setParams({ stream: chosen === usual ? null : chosen });
  };
  return (
    <main>
      <header class="bar">
        <h1>
          <a href={to(`runs/${run}`)}>Run {run}</a>
          {trial && row && `, ${nameOf(row, trial)}`}
        </h1>
        {trial && <State state={trial.state} />}
        <Tags tags={label.tags} />
        <EditTrial run={run} trial={id} label={label} />
      </header>
      <Failure error={error} />
      {trial && <Facts run={row} trial={trial} label={label} />}
      {trial &&
        Object.entries(trial.metrics)
          .filter(([, curve]) => curve.value.length > 1) // a single value is among the facts
          .map(([name, curve]) => <CurveChart key={name} name={name} curve={curve} log={params.get("ylog")} />)}
      {trial && <Usage attempts={trial.attempts} />}
      {trial && <Attempts attempts={trial.attempts} />}
      {trial && (
        <section>
          <header class="bar">
            <h2>Output</h2>
            <label>
              Stream{" "}
              <select
                value={stream}
                onChange={(e) => open(e.currentTarget.value, null)}
              >
                <option value="stdout">stdout ({size(trial.output.stdout)})</option>
                <option value="stderr">stderr ({size(trial.output.stderr)})</option>
              </select>
            </label>
            {trial.attempts.length > 1 && (
              <span class="dim">of the last attempt; that of earlier ones is in the files stdout.1, stderr.1 … below</span>
            )}
          </header>
          <Log
            key={stream}
            run={run}
            trial={id}
            stream={stream}
            size={trial.output[stream]}
            error={errorOffset}
            other={other}
            openOther={(offset) => open(other, offset)}
          />
        </section>
      )}
      {trial && <TrialFiles run={run} trial={id} />}
    </main>
  );
}
