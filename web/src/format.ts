// SPDX-License-Identifier: Apache-2.0
// Numbers and times as people read them.
import type { Run } from "./api";

export function count(n: number): string {
  return n.toLocaleString("en-US");
}

export const capital = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);

type Kind = { kind: string | null; ranks: number | null };

/** What the trials of a run are: ranks of a training, nodes of a cluster, or trials. */
export const unitOf = (run: Kind) => (run.kind === "cluster" ? "node" : run.ranks ? "rank" : "trial");

/** Ranks and nodes count from 0, as in the terminal. */
export const unitNumber = (run: Kind, number: number) => (run.ranks ? number - 1 : number);

/** How hyperparameters are chosen; a grid of one trial has no choice. */
export const kindOf = (run: Pick<Run, "kind" | "total">) => (run.kind === "grid" && run.total === 1 ? "single" : (run.kind ?? ""));

/** "trial 7", "rank 0" */
export const unitName = (run: Kind, number: number) => `${unitOf(run)} ${unitNumber(run, number)}`;

/** "1 trial", "3 ranks" */
export const units = (run: Kind, n: number) => `${count(n)} ${unitOf(run)}${n === 1 ? "" : "s"}`;

/** Six significant digits, as the terminal shows metrics. */
export function metric(value: number | null | undefined): string {
  if (value === null || value === undefined) return "";
  return Number.isInteger(value) && Math.abs(value) < 1e15 ? String(value) : String(Number(value.toPrecision(6)));
}

export function duration(ms: number): string {
  const s = Math.max(0, ms) / 1000;
  const two = (n: number) => String(Math.floor(n)).padStart(2, "0");
  if (s < 10) return `${s.toFixed(1)}s`;
  if (s < 60) return `${Math.floor(s)}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${two(s % 60)}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h${two((s % 3600) / 60)}m`;
  return `${Math.floor(s / 86400)}d${two((s % 86400) / 3600)}h`;
}

export function age(iso: string, now: number): string {
  const ms = now - Date.parse(iso);
  return ms < 5000 ? "now" : `${duration(ms).replace(/(\d+[dhm])\d.*$/, "$1")} ago`;
}

export function value(x: unknown): string {
  if (typeof x === "number") return metric(x);
  return typeof x === "string" ? x : JSON.stringify(x);
}

/** Arguments as one types them in a shell; of a Python function, its title. */
export function command(words: string[] | string): string {
  if (typeof words === "string") return words;
  return words.map((w) => (/^[\w@%+=:,./{}-]+$/.test(w) ? w : `'${w.replaceAll("'", `'\\''`)}'`)).join(" ");
}

/** "4.1 GB" (1 GB = 1024³ bytes) */
export function size(bytes: number): string {
  const units = ["bytes", "KB", "MB", "GB", "TB"];
  let unit = 0;
  for (; bytes >= 1024 && unit < units.length - 1; unit++) bytes /= 1024;
  return unit === 0 ? `${bytes} bytes` : `${bytes.toFixed(bytes < 10 ? 1 : 0)} ${units[unit]}`;
}
