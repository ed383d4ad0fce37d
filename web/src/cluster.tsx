// SPDX-License-Identifier: Apache-2.0
// The agents of all active runs, as reported by their drivers.
import { useEffect, useState } from "preact/hooks";
import { type Agent, type Cluster as ClusterState, type ClusterRun, getCluster, type Gpu } from "./activity";
import { inProject } from "./address";
import { getProjects, type Project } from "./api";
import { count, size } from "./format";
import { useLive } from "./live";
import { Failure, Scroll, useTitle } from "./parts";
import "./activity.css";

const POLL_MS = 2000;

/** Polled every two seconds while the page is visible: changes are not in the store. */
function usePolled(): { value?: ClusterState; error?: Error } {
  const [state, setState] = useState<{ value?: ClusterState; error?: Error }>({});
  useEffect(() => {
    let isCurrent = true;
    let timer: ReturnType<typeof setTimeout>;
    const poll = async () => {
      if (!document.hidden) {
        try {
          const value = await getCluster();
          if (isCurrent) setState({ value });
        } catch (error) {
          if (isCurrent) setState((old) => ({ value: old.value, error: error as Error }));
        }
      }
      if (isCurrent) timer = setTimeout(() => void poll(), POLL_MS);
    };
    void poll();
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, []);
  return state;
}

interface Part {
  value: number;
  kind: string;
}

/** A bar with parts of a whole, and its figure as text. */
function Meter({ parts, total, text, label }: { parts: Part[]; total: number; text: string; label: string }) {
  const used = parts.reduce((sum, p) => sum + p.value, 0);
  return (
    <span class="meter" role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={total} aria-valuenow={Math.min(used, total)} aria-valuetext={text}>
      <span class="track">
        {parts.map((p) => (
          <span key={p.kind} class={`part ${p.kind}`} style={{ width: `${total > 0 ? Math.min(100, (100 * p.value) / total) : 0}%` }} />
        ))}
      </span>
      <span class="figure">{text}</span>
    </span>
  );
}

const percent = (x: number) => `${Math.round(100 * x)}%`;

function Slots({ agent }: { agent: Agent }) {
  const parts = [
    { value: agent.running - agent.held, kind: "busy" },
    { value: agent.held, kind: "held" },
  ];
  return (
    <>
      <Meter parts={parts} total={agent.slots} text={`${count(agent.running)} of ${count(agent.slots)}`} label={`Slots of ${agent.name} in use`} />
      {agent.held > 0 && (
        <div class="dim wrap">
          {count(agent.held)} held: {agent.held_why}
        </div>
      )}
    </>
  );
}

/** Trials in full color, all other memory of the machine in a pale color. */
function Memory({ agent }: { agent: Agent }) {
  const total = agent.machine_memory ?? agent.memory;
  if (!total) return null;
  const used = agent.machine_memory_used ?? agent.trials_memory;
  const trials = Math.min(agent.trials_memory, used);
  const parts = [
    { value: trials, kind: used > 0.95 * total ? "full" : "busy" },
    { value: used - trials, kind: "other" },
  ];
  return (
    <>
      <Meter parts={parts} total={total} text={`${size(used)} of ${size(total)}`} label={`Memory of ${agent.name} in use`} />
      <div class="dim">{size(agent.trials_memory)} by its trials</div>
    </>
  );
}

function GpuRow({ gpu, index, agent }: { gpu: Gpu; index: number; agent: string }) {
  const leases = gpu.trials === 0 ? "not leased" : `${gpu.trials} trial${gpu.trials > 1 ? "s" : ""}`;
  const use = gpu.use === null ? "" : `, ${percent(gpu.use)} busy`;
  const used = gpu.memory_used;
  return (
    <div class="gpu">
      {used === null ? (
        <span>
          GPU {index} <span class="dim">{size(gpu.memory_total)}</span>
        </span>
      ) : (
        <Meter parts={[{ value: used, kind: "busy" }]} total={gpu.memory_total} text={`${size(used)} of ${size(gpu.memory_total)}`} label={`Memory of GPU ${index} of ${agent} in use`} />
      )}
      <span class="dim">
        {gpu.name}: {leases}
        {use}
      </span>
    </div>
  );
}

const SERVERS: Record<string, string> = { starting: "fork server is starting", ready: "fork server is ready" };

function Agents({ agents }: { agents: Agent[] }) {
  const hasGpus = agents.some((a) => a.gpus.length > 0);
  return (
    <Scroll label="Agents">
      <table class="cluster">
        <thead>
          <tr>
            <th>Agent</th>
            <th>Slots</th>
            <th>Memory</th>
            {hasGpus && <th>GPUs</th>}
          </tr>
        </thead>
        <tbody>
          {agents.map((a, i) => (
            <tr key={i}>
              <td>
                {a.name}
                {a.host && a.host !== a.name && <span class="dim"> on {a.host}</span>}
                {!a.connected && <div class="dim">{a.slots ? "not connected" : "starting"}</div>}
                {a.fork_server && <div class="dim">{SERVERS[a.fork_server]}</div>}
              </td>
              <td>
                <Slots agent={a} />
              </td>
              <td>
                <Memory agent={a} />
              </td>
              {hasGpus && (
                <td>
                  {a.gpus.map((g, k) => (
                    <GpuRow key={k} gpu={g} index={k} agent={a.name} />
                  ))}
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

function RunAgents({ run, projects }: { run: ClusterRun; projects: Project[] }) {
  const project = projects.find((p) => p.id === run.project);
  const href = inProject(!project || project.is_own ? null : project.id, `runs/${run.run}`);
  const left = (run.agents_total ?? 0) - (run.agents?.length ?? 0);
  return (
    <section class="cluster-run">
      <header class="bar">
        <h2>
          <a href={href}>
            Run {run.run} {run.name}
          </a>
          {projects.length > 1 && project && <span class="dim"> in {project.name}</span>}
        </h2>
        {run.answers && (
          <span class="dim">
            {count(run.running ?? 0)} running, {count(run.queued ?? 0)} in the queue
          </span>
        )}
      </header>
      {run.answers ? (
        run.agents?.length ? (
          <Agents agents={run.agents} />
        ) : (
          <p class="dim">It has no agents yet.</p>
        )
      ) : (
        <p class="dim">Its driver is not responding.</p>
      )}
      {left > 0 && <p class="dim">and {count(left)} more agents</p>}
    </section>
  );
}

export function Cluster() {
  useTitle("Cluster");
  const { value, error } = usePolled();
  const projects = useLive("projects", getProjects).value?.projects ?? [];
  return (
    <main>
      <header class="bar">
        <h1>Cluster</h1>
      </header>
      <Failure error={error} />
      {value?.failures.map((text) => (
        <Failure key={text} error={new Error(text)} />
      ))}
      {value?.runs.map((run) => (
        <RunAgents key={`${run.project} ${run.run}`} run={run} projects={projects} />
      ))}
      {value && value.runs.length === 0 && <p class="dim">No runs are active, so there are no agents.</p>}
      {value && value.standby.length > 0 && (
        <section>
          <h2>On standby</h2>
          <p>
            {value.standby.length === 1 ? "One agent is waiting" : `${count(value.standby.length)} agents are waiting`} for the next run of a Python
            process, with its modules imported:{" "}
            {value.standby.map((s) => `process ${s.pid}, for ${s.client_pid}`).join("; ")}.
          </p>
        </section>
      )}
    </main>
  );
}
