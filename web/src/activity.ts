// SPDX-License-Identifier: Apache-2.0
// What ran where and what it used: the API's replies, and what the views derive from them.
import { request } from "./api";

/** Attempts of a run by column. Times are milliseconds since `origin`. */
export interface TimelineColumns {
  origin: number;
  from: number;
  to: number;
  is_complete: boolean; // false: shorter attempts are left out
  agents: string[];
  trial: number[];
  attempt: number[];
  agent: number[];
  queued: number[];
  started: number[];
  begun: (number | null)[];
  ended: (number | null)[];
  gpus: number[][];
  held: (string | null)[];
  state: string;
}

/** What all attempts used together, as means over intervals. */
export interface RunUsage {
  origin: number;
  from: number;
  to: number;
  time: number[];
  running: number[];
  waiting: number[];
  memory: number[];
  cpu: number[];
  gpu_memory: number[];
  gpu_use: number[];
}

export interface Gpu {
  name: string;
  memory_total: number;
  memory_used: number | null;
  use: number | null;
  trials: number;
}

export interface Agent {
  name: string;
  host: string;
  connected: boolean;
  slots: number;
  running: number;
  held: number;
  held_why: string | null;
  memory: number | null;
  trials_memory: number;
  machine_memory: number | null;
  machine_memory_used: number | null;
  fork_server: string | null;
  gpus: Gpu[];
}

export interface ClusterRun {
  project: string;
  run: number;
  name: string | null;
  answers: boolean;
  agents?: Agent[];
  agents_total?: number;
  running?: number;
  queued?: number;
  slots?: number;
  slots_used?: number;
}

export interface Cluster {
  runs: ClusterRun[];
  standby: { pid: number; client_pid: number }[];
  failures: string[]; // projects that cannot be read
}

/** A part of a run's time in milliseconds since its beginning; null: all of it. */
export type Span = { from: number; to: number } | null;

const query = (span: Span, rest: string) => `?${span ? `from=${Math.floor(span.from)}&to=${Math.ceil(span.to)}&` : ""}${rest}`;

export const getTimeline = (run: number, span: Span) =>
  request<TimelineColumns>(`/runs/${run}/timeline${query(span, "limit=5000")}`);
export const getUsage = (run: number, span: Span) => request<RunUsage>(`/runs/${run}/usage${query(span, "points=240")}`);
export const getCluster = () => request<Cluster>("/cluster");

// ---- lanes -------------------------------------------------------------------------------------------

/** A bar on a lane: an attempt, or its wait. */
export interface Bar {
  index: number; // in the columns
  from: number;
  to: number;
  kind: string; // the letter of its state, "h" (held) or "q" (queued)
}

export interface Lanes {
  title: string;
  lanes: Bar[][];
}

/** Puts bars on as few lanes as possible, so that those of a lane do not overlap. */
export function pack(bars: Bar[]): Bar[][] {
  const lanes: Bar[][] = [];
  const ends: number[] = [];
  for (const bar of [...bars].sort((a, b) => a.from - b.from || a.index - b.index)) {
    let lane = ends.findIndex((end) => end <= bar.from);
    if (lane < 0) lane = lanes.push([]) - 1;
    lanes[lane]!.push(bar);
    ends[lane] = bar.to;
  }
  return lanes;
}

const QUEUE_MIN_MS = 50; // shorter waits are the time of a message

/** The slots and GPUs of each agent, and the queue. Unfinished bars end at `now`. */
export function lanesOf(all: TimelineColumns, now: number): Lanes[] {
  const slots = all.agents.map((): Bar[] => []);
  const gpus = all.agents.map(() => new Map<number, Bar[]>());
  const queue: Bar[] = [];
  all.trial.forEach((_, index) => {
    const bar = { index, from: all.started[index]!, to: all.ended[index] ?? now, kind: all.state[index]! };
    slots[all.agent[index]!]!.push(bar);
    for (const gpu of all.gpus[index]!) {
      const bars = gpus[all.agent[index]!]!;
      if (!bars.has(gpu)) bars.set(gpu, []);
      bars.get(gpu)!.push(bar);
    }
    if (bar.from - all.queued[index]! >= QUEUE_MIN_MS) queue.push({ index, from: all.queued[index]!, to: bar.from, kind: "q" });
  });
  const groups: Lanes[] = [];
  all.agents.forEach((title, i) => {
    groups.push({ title, lanes: pack(slots[i]!) });
    for (const gpu of [...gpus[i]!.keys()].sort((a, b) => a - b)) groups.push({ title: `GPU ${gpu}`, lanes: pack(gpus[i]!.get(gpu)!) });
  });
  if (queue.length) groups.push({ title: "waiting", lanes: pack(queue) });
  return groups;
}
