// SPDX-License-Identifier: Apache-2.0
// The server's JSON API, /api/v1/….

export interface Run {
  run: number;
  name: string | null;
  state: string;
  message: string | null;
  command: string[];
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
  best_trial: number | null;
  best_value: number | null;
  notes?: { seq: number; time: number; text: string }[];
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

/** All trials of a run, by column: the n-th of each belong to the n-th trial. */
export interface Columns {
  number: number[];
  state: string; // the first letter of each
  value: (number | null)[];
  seconds: (number | null)[];
  params: Record<string, unknown[]>;
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
}

/** A reply that is not a success: the server's sentence. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    text: string,
  ) {
    super(text);
  }
}

async function request<T>(path: string, init?: RequestInit): Promise<T> {
  const reply = await fetch(`/api/v1${path}`, { credentials: "same-origin", ...init });
  if (reply.status === 204) return undefined as T;
  const value = await reply.json();
  if (!reply.ok) throw new Refused(reply.status, value.error ?? reply.statusText);
  return value as T;
}

export const getRuns = () => request<{ project: string; runs: Run[] }>("/runs");
export const getRun = (run: string) => request<Run>(`/runs/${encodeURIComponent(run)}`);
export const stopRun = (run: number) => request<void>(`/runs/${run}/stop`, { method: "POST" });

export const getTrials = (run: string, sort: string, offset: number, limit: number) =>
  request<{ count: number; trials: Trial[] }>(
    `/runs/${encodeURIComponent(run)}/trials?sort=${sort}&offset=${offset}&limit=${limit}`,
  );

export const getColumns = (run: string) => request<Columns>(`/runs/${encodeURIComponent(run)}/columns`);

export const getTrial = (run: string, trial: string) =>
  request<TrialDetails>(`/runs/${encodeURIComponent(run)}/trials/${encodeURIComponent(trial)}`);

/** The output of a trial, in pieces as they come, until the trial is over or `signal` aborts. */
export async function* readOutput(run: string, trial: string, stream: string, offset: number, signal: AbortSignal) {
  const path = `/api/v1/runs/${encodeURIComponent(run)}/trials/${encodeURIComponent(trial)}/output/${stream}`;
  const reply = await fetch(`${path}?offset=${offset}&follow=1`, { signal });
  if (!reply.ok) throw new Refused(reply.status, (await reply.json()).error);
  const reader = reply.body!.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}
