// SPDX-License-Identifier: Apache-2.0
// One trial: its hyperparameters, reported values, attempts and output.
import { useState } from "preact/hooks";
import { type Attempt, getTrial, type TrialDetails } from "./api";
import { CurveChart } from "./chart";
import { duration, metric, size, value } from "./format";
import { useLive } from "./live";
import { Log } from "./log";
import { Fact, Failure, State } from "./parts";

function Attempts({ attempts }: { attempts: Attempt[] }) {
  return (
    <section>
      <h2>Attempts</h2>
      <div class="scroll">
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
      </div>
      {attempts
        .filter((a) => a.detail)
        .map((a) => (
          <details key={a.attempt}>
            <summary>Why attempt {a.attempt} failed</summary>
            <pre class="log">{a.detail}</pre>
          </details>
        ))}
    </section>
  );
}

function Facts({ trial }: { trial: TrialDetails }) {
  return (
    <dl class="facts">
      <Fact name="Value">{metric(trial.value)}</Fact>
      {Object.entries(trial.params).map(([name, x]) => (
        <Fact key={name} name={name}>
          {value(x)}
        </Fact>
      ))}
      <Fact name="Message">{trial.message}</Fact>
    </dl>
  );
}

export function Trial({ run, id }: { run: string; id: string }) {
  const [stream, setStream] = useState("stdout");
  const { value: trial, error } = useLive(`trial ${run} ${id}`, () => getTrial(run, id));
  return (
    <main>
      <header class="bar">
        <h1>
          <a href={`/runs/${run}`}>Run {run}</a>, trial {id}
        </h1>
        {trial && <State state={trial.state} />}
      </header>
      <Failure error={error} />
      {trial && <Facts trial={trial} />}
      {trial && Object.entries(trial.metrics).map(([name, curve]) => <CurveChart key={name} name={name} curve={curve} />)}
      {trial && <Attempts attempts={trial.attempts} />}
      {trial && (
        <section>
          <header class="bar">
            <h2>Output</h2>
            <label>
              Stream{" "}
              <select value={stream} onChange={(e) => setStream(e.currentTarget.value)}>
                <option>stdout</option>
                <option>stderr</option>
              </select>
            </label>
          </header>
          <Log key={stream} run={run} trial={id} stream={stream} />
        </section>
      )}
    </main>
  );
}
