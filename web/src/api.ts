// SPDX-License-Identifier: Apache-2.0
// The server's JSON API, /api/v1/….
import { BASE, currentProject } from "./address";

export interface Project {
  id: string;
  name: string;
  path: string;
  is_own: boolean;
}

export interface Run {
  run: number;
  name: string | null;
  state: string;
  message: string | null;
  kind: string | null;
  engine: string | null;
  tags: string[];
  note: string | null;
  command: string[] | string; // a string: the title of a Python function
  ranks: number | null;
  metric: string | null;
  maximize: boolean;
  seed: number;
  git: string | null;
  versions: Record<string, string>;
  created: string;
  ended: string | null;
  logdir: string | null;
  total: number | null;
  running: number;
  done: number;
  failed: number;
  stopped: number;
  pruned: number; // stopped early
  paused: number;
  best_trial: number | null;
  best_value: number | null;
  notes?: { seq: number; time: number; text: string }[];
  trial_labels?: Record<string, Label>;
  search?: Search | null;
  cwd?: string | null; // where trials run
  project?: string; // its directory or URL
  options?: [string, string][]; // that apply to each trial: ["memory", "4G"]
}

/** A label that a user gives to a run or a trial. */
export interface Label {
  tags: string[];
  note: string | null;
}

/** How the hyperparameters of a run are chosen. */
export interface Search {
  kind: "grid" | "random" | "evolve" | "paired" | "tpe" | "cma";
  population: number; // of an evolution: trial n is of generation (n - 1) / population; otherwise 0
  space: Dimension[];
}

export interface Dimension {
  name: string;
  kind: "float" | "int" | "category";
  log: boolean; // a logarithmic axis is suitable
  low: number | null; // null: a category, or no bound
  high: number | null;
  step: number | null;
  mean: number | null; // of a normal distribution; null: uniform
  deviation: number | null;
  choices: string[]; // of a category, the first ones
  choice_count: number;
  condition: string | null; // where it is not true, the hyperparameter is inactive
}

export interface Trial {
  number: number;
  state: string;
  params: Record<string, unknown>;
  value?: number | null;
  elapsed_ms?: number;
  attempt?: number;
  dir: string;
  message?: string | null;
}

/** Trials of a run, by column: the n-th of each belong to the n-th trial. */
export interface Columns {
  since: number; // 0: these are all; otherwise only those that have changed
  seq: number; // the next `since`
  number: number[];
  state: string; // the first letter of each
  value: (number | null)[];
  start: number[]; // seconds after the run
  seconds: (number | null)[];
  params: Record<string, unknown[]>;
  messages: Record<string, string>; // by number
}

/** The reported values of several trials. */
export interface Curves {
  names: string[]; // that these trials have reported
  name: string | null;
  curves: { trial: number; step: (number | null)[]; value: (number | null)[]; time: number[] }[];
}

export interface Importance {
  method: string;
  trials: number;
  used: number;
  importance: { name: string; share: number }[];
  pairs: { names: string[]; share: number }[];
  why: string | null;
}

/** What an attempt used over time. */
export interface AttemptUsage {
  time_ms: number[]; // since its process was started
  memory: number[];
  cpu_ms: number[]; // so far
  gpu_memory: number[] | null;
  gpu_use: number[] | null;
}

export interface Attempt {
  attempt: number;
  state: string;
  agent: string | null;
  host: string | null;
  exit_code: number;
  message: string | null;
  detail: string | null;
  started: number;
  ended: number;
  cpu_ms: number;
  peak_memory: number;
  queued: number; // 0: not known
  held: string | null; // what it waited for on its agent
  begun: number; // the end of that wait; 0: it lasts, or there was none
  gpus: number[];
  usage: AttemptUsage | null; // null: too short to be sampled
}

export interface Curve {
  attempt: number[];
  step: (number | null)[];
  value: (number | null)[];
  time: number[];
}

export interface TrialDetails extends Trial {
  attempts: Attempt[];
  metrics: Record<string, Curve>;
  output: { stdout: number; stderr: number }; // bytes
}

/** A reply that is not a success: the server's sentence. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    text: string,
    readonly option: string | null = null, // of a run that was not started: the option that is wrong
  ) {
    super(text);
  }
}

/** The address of an endpoint, "/runs/7", for the project that is shown, or another one. */
export function endpoint(path: string, project = currentProject()): string {
  return `${BASE}api/v1${path}${project ? `${path.includes("?") ? "&" : "?"}project=${project}` : ""}`;
}

export async function request<T>(path: string, init?: RequestInit, project = currentProject()): Promise<T> {
  const reply = await fetch(endpoint(path, project), { credentials: "same-origin", ...init });
  if (reply.status === 204) return undefined as T;
  const value = await reply.json();
  if (!reply.ok) throw new Refused(reply.status, value.error ?? reply.statusText, value.option);
  return value as T;
}

export const getProjects = () => request<{ projects: Project[] }>("/projects");
export const getScripts = () => request<{ scripts: string[] }>("/scripts");
export const getRuns = () => request<{ project: string; runs: Run[] }>("/runs");
export const getRunsOf = (project: string) => request<{ runs: Run[] }>("/runs", undefined, project);
export const getRun = (run: string) => request<Run>(`/runs/${encodeURIComponent(run)}`);
const json = (method: string, value?: unknown): RequestInit => ({
  method,
  headers: value === undefined ? undefined : { "Content-Type": "application/json" },
  body: value === undefined ? undefined : JSON.stringify(value),
});

export const startRun = (command: string[], options: [string, string][]) =>
  request<{ run: number }>("/runs", json("POST", { command, options }));
export const resumeRun = (run: number) => request<{ run: number }>(`/runs/${run}/resume`, json("POST"));
export const removeRun = (run: number) => request<void>(`/runs/${run}`, json("DELETE"));
export const changeRun = (run: number, change: Partial<Label> & { name?: string | null }) =>
  request<void>(`/runs/${run}`, json("PATCH", change));
export const changeTrial = (run: number | string, trial: number | string, change: Partial<Label>) =>
  request<void>(`/runs/${run}/trials/${trial}`, json("PATCH", change));
export const stopRun = (run: number) => request<void>(`/runs/${run}/stop`, { method: "POST" });

export const getColumns = (run: string, since: number) =>
  request<Columns>(`/runs/${encodeURIComponent(run)}/columns?since=${since}`);

export const getCurves = (run: string, query: Record<string, string>) =>
  request<Curves>(`/runs/${encodeURIComponent(run)}/curves?${new URLSearchParams(query)}`);

export const getImportance = (run: string) => request<Importance>(`/runs/${encodeURIComponent(run)}/importance`);

export const getTrial = (run: string, trial: string) =>
  request<TrialDetails>(`/runs/${encodeURIComponent(run)}/trials/${encodeURIComponent(trial)}`);

const outputPath = (run: string, trial: string, stream: string) =>
  `/runs/${encodeURIComponent(run)}/trials/${encodeURIComponent(trial)}/output/${stream}`;

/** The output of a trial from an offset on, in pieces as they come, until the trial is over or `signal` aborts. */
export async function* followOutput(run: string, trial: string, stream: string, offset: number, signal: AbortSignal) {
  const headers = { Accept: "text/event-stream" }; // otherwise JupyterHub's proxy waits for the end
  const reply = await fetch(endpoint(`${outputPath(run, trial, stream)}?offset=${offset}&follow=1`), { headers, signal });
  if (!reply.ok) throw new Refused(reply.status, (await reply.json()).error);
  const reader = reply.body!.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}

/** At most `limit` bytes of the output. */
export async function readOutput(run: string, trial: string, stream: string, offset: number, limit: number) {
  const reply = await fetch(endpoint(`${outputPath(run, trial, stream)}?offset=${offset}&limit=${limit}`));
  if (!reply.ok) throw new Refused(reply.status, (await reply.json()).error);
  return new Uint8Array(await reply.arrayBuffer());
}

export const searchOutput = (
  run: string,
  trial: string,
  stream: string,
  text: string | null,
  offset: number,
  backward: boolean,
) => {
  const params = new URLSearchParams({ offset: String(offset) });
  if (text !== null) params.set("text", text);
  if (backward) params.set("backward", "1");
  return request<{ found: number | null; next: number | null }>(`${outputPath(run, trial, stream)}/search?${params}`);
};
