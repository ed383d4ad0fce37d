// SPDX-License-Identifier: Apache-2.0
// Which trials are shown: a filter of words and comparisons, the best ones, and ranges of columns. All in the address.
import type { Run } from "./api";
import { setParams } from "./address";
import type { Column, Trials } from "./trials";

/** A range of numbers, or some choices of a category. */
export type Brush = { low: number; high: number } | { texts: string[] };
export type Brushes = Map<string, Brush>; // by the key of a column

export interface Selection {
  filter: string;
  best: number; // percent; 100: all
  brushes: Brushes;
}

export function readBrushes(text: string | null): Brushes {
  const brushes: Brushes = new Map();
  let parsed: unknown;
  try {
    parsed = JSON.parse(text ?? "{}");
  } catch {
    return brushes; // a truncated address
  }
  if (typeof parsed !== "object" || parsed === null) return brushes;
  for (const [key, range] of Object.entries(parsed)) {
    if (!Array.isArray(range)) continue;
    const [low, high] = range as unknown[];
    if (typeof low === "number" && typeof high === "number") brushes.set(key, { low, high });
    else if (range.every((x) => typeof x === "string")) brushes.set(key, { texts: range });
  }
  return brushes;
}

export function writeBrushes(brushes: Brushes): void {
  const all = [...brushes].map(([key, b]) => [key, "texts" in b ? b.texts : [b.low, b.high]]);
  setParams({ brush: all.length ? JSON.stringify(Object.fromEntries(all)) : null });
}

export function setBrush(brushes: Brushes, key: string, brush: Brush | null): Brushes {
  const next = new Map(brushes);
  if (brush) next.set(key, brush);
  else next.delete(key);
  return next;
}

export function readSelection(params: URLSearchParams): Selection {
  const best = Number(params.get("best") ?? 100);
  return {
    filter: params.get("filter") ?? "",
    best: best > 0 && best < 100 ? best : 100,
    brushes: readBrushes(params.get("brush")),
  };
}

/** Trials picked by hand, in their order. */
export function readPicked(params: URLSearchParams): number[] {
  return (params.get("pick") ?? "").split(",").map(Number).filter((n) => Number.isInteger(n) && n > 0);
}

export function writePicked(numbers: number[]): void {
  setParams({ pick: numbers.length ? numbers.join(",") : null });
}

type Test = (i: number) => boolean;

function brushTest(column: Column, brush: Brush): Test {
  const { numbers, texts } = column;
  if ("texts" in brush) {
    const wanted = new Set(brush.texts);
    return (i) => wanted.has(texts?.[numbers[i]!] ?? "");
  }
  return (i) => numbers[i]! >= brush.low && numbers[i]! <= brush.high;
}

function bestTest(trials: Trials, run: Run, percent: number): Test {
  const { numbers } = trials.column("value", run);
  const sorted = numbers.filter((x) => !Number.isNaN(x)).sort();
  const count = Math.ceil((sorted.length * percent) / 100);
  if (count === 0) return () => false;
  if (run.maximize) {
    const least = sorted[sorted.length - count]!;
    return (i) => numbers[i]! >= least;
  }
  const most = sorted[count - 1]!;
  return (i) => numbers[i]! <= most;
}

const COMPARISON = /^(.+?)(<=|>=|<|>|=)(.+)$/;

/** The column that a comparison names; null: there is none. */
function keyOf(trials: Trials, run: Run, name: string): string | null {
  if (["number", "state", "value", "time"].includes(name)) return name;
  if (name === run.metric) return "value";
  return trials.paramNames.includes(name) ? `p:${name}` : null;
}

/** "lr<0.01", "act=relu", "tag=odd", a number, or a word that is somewhere in the row. */
function wordTest(trials: Trials, run: Run, word: string): Test {
  const found = COMPARISON.exec(word);
  const key = found && keyOf(trials, run, found[1]!);
  if (!key && found?.[1] === "tag" && found[2] === "=") {
    const tag = found[3]!.toLowerCase();
    return (i) => trials.label(i).tags.some((t) => t.toLowerCase() === tag);
  }
  if (!found || !key) {
    const lower = word.toLowerCase();
    const x = Number(word);
    if (Number.isNaN(x)) return (i) => trials.wordsOf(i).includes(lower);
    return (i) => trials.wordsOf(i).includes(lower) || trials.hasNumber(i, x);
  }
  const { numbers, texts } = trials.column(key, run);
  const [, , operator, text] = found;
  if (texts) return (i) => (texts[numbers[i]!] ?? "").toLowerCase() === text!.toLowerCase();
  const x = Number(text);
  switch (operator) {
    case "<":
      return (i) => numbers[i]! < x;
    case "<=":
      return (i) => numbers[i]! <= x;
    case ">":
      return (i) => numbers[i]! > x;
    case ">=":
      return (i) => numbers[i]! >= x;
    default:
      return (i) => numbers[i] === x;
  }
}

const wordsIn = (filter: string) => filter.split(/\s+/).filter(Boolean);

/** Names in the filter that are not columns, of comparisons that no row contains as text. */
export function unknownNames(trials: Trials, run: Run, filter: string): string[] {
  const unknown = wordsIn(filter).filter((word) => {
    const name = COMPARISON.exec(word)?.[1];
    if (name === undefined || name === "tag" || keyOf(trials, run, name)) return false;
    const test = wordTest(trials, run, word);
    for (let i = 0; i < trials.count; i++) if (test(i)) return false;
    return trials.count > 0;
  });
  return [...new Set(unknown.map((word) => COMPARISON.exec(word)![1]!))];
}

/** The indexes of the selected trials, in the order of `trials`. */
export function selectRows(trials: Trials, run: Run, selection: Selection): Uint32Array {
  const tests: Test[] = [];
  for (const [key, brush] of selection.brushes) tests.push(brushTest(trials.column(key, run), brush));
  if (selection.best < 100) tests.push(bestTest(trials, run, selection.best));
  for (const word of wordsIn(selection.filter)) tests.push(wordTest(trials, run, word));
  const rows = new Uint32Array(trials.count);
  let n = 0;
  for (let i = 0; i < trials.count; i++) if (tests.every((test) => test(i))) rows[n++] = i;
  return rows.subarray(0, n);
}
