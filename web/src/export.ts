// SPDX-License-Identifier: Apache-2.0
// What a table shows, as a file.
import type { Run } from "./api";
import type { Column, Trials } from "./trials";

function download(name: string, type: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** Names for programs: times in seconds. */
const names: Record<string, string> = { number: "trial", start: "start_seconds", time: "seconds" };
const nameOf = (c: Column) => names[c.key] ?? (c.key.startsWith("p:") || c.key === "value" ? c.title : c.key);

/** A cell as it is in the store; a text of a category that is JSON there stays JSON. */
function cell(trials: Trials, c: Column, i: number): unknown {
  if (c.key.startsWith("p:")) return trials.param(c.key.slice(2), i);
  const x = c.numbers[i]!;
  return Number.isNaN(x) ? null : c.texts ? c.texts[x] : x;
}

function csvCell(x: unknown): string {
  const text = x === null ? "" : typeof x === "string" ? x : typeof x === "number" ? String(x) : JSON.stringify(x);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function csv(trials: Trials, columns: Column[], rows: Uint32Array): string {
  const lines = [columns.map((c) => csvCell(nameOf(c))).join(",")];
  for (const i of rows) lines.push(columns.map((c) => csvCell(cell(trials, c, i))).join(","));
  return `${lines.join("\r\n")}\r\n`;
}

export function exportCsv(run: Run, trials: Trials, columns: Column[], rows: Uint32Array): void {
  download(`run-${run.run}.csv`, "text/csv", csv(trials, columns, rows));
}

export function exportJson(run: Run, trials: Trials, columns: Column[], rows: Uint32Array): void {
  const params = columns.filter((c) => c.key.startsWith("p:"));
  const others = columns.filter((c) => !c.key.startsWith("p:"));
  const all = Array.from(rows, (i) => ({
    ...Object.fromEntries(others.map((c) => [nameOf(c), c.key === "tags" ? trials.label(i).tags : cell(trials, c, i)])),
    params: Object.fromEntries(params.map((c) => [c.title, cell(trials, c, i)])),
  }));
  download(`run-${run.run}.json`, "application/json", `${JSON.stringify(all, null, 1)}\n`);
}
