// SPDX-License-Identifier: Apache-2.0
// The trials of a run as columns of numbers, so that 100,000 of them are sorted, filtered and drawn at once.
import { useRef } from "preact/hooks";
import { type Columns, getColumns, type Label, type Run } from "./api";
import { capital, metric, unitNumber, unitOf, value as valueText } from "./format";
import { type Live, pace, useLive } from "./live";

/** What is drawn and sorted: the n-th number belongs to the n-th trial. */
export interface Column {
  key: string; // "number", "state", "value", "tags", "note", "time", "start", "message", "p:lr"
  title: string;
  numbers: Float64Array; // NaN: it has none
  texts: string[] | null; // of a category: the text of each number
  min: number;
  max: number;
}

const STATES: Record<string, string> = { r: "running", d: "done", f: "failed", s: "stopped", p: "pruned", w: "paused" };
const collator = new Intl.Collator("en", { numeric: true });

function extent(numbers: Float64Array): { min: number; max: number } {
  let min = Infinity;
  let max = -Infinity;
  for (const x of numbers) {
    if (x < min) min = x;
    if (x > max) max = x;
  }
  return { min, max };
}

function numeric(key: string, title: string, cells: readonly unknown[]): Column {
  const numbers = new Float64Array(cells.length);
  cells.forEach((cell, i) => (numbers[i] = typeof cell === "number" && Number.isFinite(cell) ? cell : NaN));
  return { key, title, numbers, texts: null, ...extent(numbers) };
}

/** Cells that are not all numbers: their index in the sorted texts. */
function category(key: string, title: string, cells: readonly (string | null)[]): Column {
  const texts = [...new Set(cells)].filter((t): t is string => t !== null).sort(collator.compare);
  const indexes = new Map(texts.map((t, i) => [t, i]));
  const numbers = Float64Array.from(cells, (cell) => (cell === null ? NaN : indexes.get(cell)!));
  return { key, title, numbers, texts, min: 0, max: Math.max(texts.length - 1, 0) };
}

interface Rows {
  number: number[];
  state: string[];
  value: (number | null)[];
  start: number[];
  seconds: (number | null)[];
  message: (string | null)[];
  params: Map<string, unknown[]>;
  indexes: Map<number, number>; // by number
}

const NO_LABEL: Label = { tags: [], note: null };

/** All trials at one moment. A merge gives new ones; the rows are shared. */
export class Trials {
  private readonly columns = new Map<string, Column>();
  private words: string[] | null = null;

  private constructor(
    private readonly rows: Rows,
    readonly seq: number,
    readonly count: number,
    private readonly labels: Record<string, Label> = {}, // by number
  ) {}

  static readonly none = new Trials(
    { number: [], state: [], value: [], start: [], seconds: [], message: [], params: new Map(), indexes: new Map() },
    0,
    0,
  );

  /** These with what has changed since. */
  merge(news: Columns): Trials {
    const old = this.rows;
    const rows: Rows =
      news.since === 0
        ? { number: [], state: [], value: [], start: [], seconds: [], message: [], params: new Map(), indexes: new Map() }
        : old;
    const names = Object.keys(news.params);
    for (const name of names) if (!rows.params.has(name)) rows.params.set(name, new Array(rows.number.length).fill(null));
    news.number.forEach((number, i) => {
      let at = rows.indexes.get(number);
      if (at === undefined) {
        at = rows.number.length;
        rows.indexes.set(number, at);
      }
      rows.number[at] = number;
      rows.state[at] = STATES[news.state[i]!] ?? "unknown";
      rows.value[at] = news.value[i]!;
      rows.start[at] = news.start[i]!;
      rows.seconds[at] = news.seconds[i]!;
      rows.message[at] = news.messages[number] ?? null;
      for (const name of names) rows.params.get(name)![at] = news.params[name]![i] ?? null;
    });
    for (const cells of rows.params.values()) while (cells.length < rows.number.length) cells.push(null);
    return new Trials(rows, news.seq, rows.number.length);
  }

  /** The same trials with their labels. */
  labeled(labels: Record<string, Label>): Trials {
    return new Trials(this.rows, this.seq, this.count, labels);
  }

  get hasLabels(): boolean {
    return Object.values(this.labels).some((l) => l.tags.length > 0 || l.note);
  }

  get paramNames(): string[] {
    return [...this.rows.params.keys()];
  }

  /** The index of a trial, by its number; -1: there is none. */
  find(number: number): number {
    return this.rows.indexes.get(number) ?? -1;
  }

  column(key: string, run: Run): Column {
    let column = this.columns.get(key);
    if (!column) {
      column = this.make(key, run);
      this.columns.set(key, column);
    }
    return column;
  }

  private make(key: string, run: Run): Column {
    const { rows } = this;
    switch (key) {
      case "number":
        return this.numbers(run);
      case "state":
        return category(key, "State", rows.state);
      case "value":
        return numeric(key, run.metric ?? "value", rows.value);
      case "time":
        return numeric(key, "Time", rows.seconds);
      case "start":
        return numeric(key, "Started", rows.start);
      case "message":
        return category(key, "Message", rows.message);
      case "tags":
        return category(key, "Tags", rows.number.map((_, i) => this.label(i).tags.join(", ") || null));
      case "note":
        return category(key, "Note", rows.number.map((_, i) => this.label(i).note));
    }
    const name = key.slice(2);
    const cells = rows.params.get(name) ?? new Array<unknown>(this.count).fill(null);
    return cells.every((x) => x === null || typeof x === "number")
      ? numeric(key, name, cells)
      : category(key, name, cells.map((x) => (x === null ? null : valueText(x))));
  }

  /** The names of the rows: nodes have names, ranks count from 0. */
  private numbers(run: Run): Column {
    const title = capital(unitOf(run));
    const names = this.rows.params.get("node");
    if (unitOf(run) === "node" && names) return category("number", title, names.map(valueText));
    return numeric("number", title, this.rows.number.map((n) => unitNumber(run, n)));
  }

  number(i: number): number {
    return this.rows.number[i]!;
  }

  state(i: number): string {
    return this.rows.state[i]!;
  }

  label(i: number): Label {
    return this.labels[this.rows.number[i]!] ?? NO_LABEL;
  }

  /** As it is in the store. */
  param(name: string, i: number): unknown {
    return this.rows.params.get(name)?.[i] ?? null;
  }

  /** The text that a filter searches. */
  wordsOf(i: number): string {
    this.words ??= this.rows.number.map((number, n) => {
      const { tags, note } = this.label(n);
      const texts = [String(number), this.rows.state[n]!, this.rows.message[n] ?? "", ...tags, note ?? ""];
      for (const cells of this.rows.params.values()) if (typeof cells[n] === "string") texts.push(cells[n] as string);
      return texts.join(" ").toLowerCase();
    });
    return this.words[i]!;
  }

  /** Whether the value or a hyperparameter is this number, or is shown as it. */
  hasNumber(i: number, x: number): boolean {
    if (isSame(this.rows.value[i], x)) return true;
    for (const cells of this.rows.params.values()) if (isSame(cells[i], x)) return true;
    return false;
  }
}

/** Up to the six digits that are shown; rounding is costly, so most cells are excluded before it. */
function isSame(cell: unknown, x: number): boolean {
  if (cell === x) return true;
  return typeof cell === "number" && Math.abs(cell - x) <= Math.abs(x) * 1e-5 && metric(cell) === metric(x);
}

/** The text of a cell. */
export function cellText(column: Column, i: number): string {
  const x = column.numbers[i]!;
  if (Number.isNaN(x)) return "";
  return column.texts ? column.texts[x]! : metric(x);
}

/** The order of rows by a column; those without a value are last. */
export function sortRows(rows: Uint32Array, column: Column, descending: boolean): Uint32Array {
  const { numbers } = column;
  const sign = descending ? -1 : 1;
  return rows.slice().sort((a, b) => {
    const x = numbers[a]!;
    const y = numbers[b]!;
    if (x === y) return a - b;
    if (x < y) return -sign;
    if (x > y) return sign;
    return Number.isNaN(x) ? (Number.isNaN(y) ? a - b : 1) : -1;
  });
}

const QUIET_MS = 1000; // between two requests, for runs with many trials
const MANY = 5000;

/** The trials with what has changed in the store since they were read. */
export async function update(run: string, trials: Trials): Promise<Trials> {
  const news = await getColumns(run, trials.seq);
  return news.since === 0 || news.number.length > 0 ? trials.merge(news) : trials;
}

/** Waits if that many trials were requested less than a second ago. */
export async function paceTrials(count: number, last: { current: number }): Promise<void> {
  if (count > MANY) await pace(last, QUIET_MS);
}

/** All trials of a run, kept up to date by what has changed. */
export function useTrials(run: string): Live<Trials> {
  const known = useRef({ run: "", trials: Trials.none });
  const last = useRef(0);
  return useLive(`trials ${run}`, async () => {
    if (known.current.run !== run) known.current = { run, trials: Trials.none };
    const mine = known.current;
    await paceTrials(mine.trials.count, last);
    mine.trials = await update(run, mine.trials);
    return mine.trials;
  });
}
