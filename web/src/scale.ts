// SPDX-License-Identifier: Apache-2.0
// Maps a column's numbers to positions from 0 to 1, and back.
import type { Run } from "./api";
import { metric } from "./format";
import type { Column } from "./trials";

export interface Scale {
  column: Column;
  isLog: boolean;
  position: (x: number) => number; // NaN stays NaN
  value: (position: number) => number;
  ticks: { position: number; text: string }[];
}

/** A logarithmic axis needs positive numbers. */
export const canBeLog = (column: Column) => column.texts === null && column.min > 0 && column.max > column.min;

export const isToggled = (list: string | null, key: string) => (list ?? "").split(",").includes(key);

/** Log where the search's space is; `toggled` are the columns for which it is the other way around. */
export function isLogAxis(run: Run, column: Column, toggled: string | null): boolean {
  const dim = column.key.startsWith("p:") ? run.search?.space.find((d) => `p:${d.name}` === column.key) : undefined;
  return canBeLog(column) && (dim?.log ?? false) !== isToggled(toggled, column.key);
}

export function toggled(list: string | null, key: string): string | null {
  const all = (list ?? "").split(",").filter(Boolean);
  const next = all.includes(key) ? all.filter((k) => k !== key) : [...all, key];
  return next.length ? next.join(",") : null;
}

function niceStep(span: number, count: number): number {
  const raw = span / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const part = raw / power;
  return (part < 1.5 ? 1 : part < 3.5 ? 2 : part < 7.5 ? 5 : 10) * power;
}

function linearTicks(min: number, max: number): number[] {
  const step = niceStep(max - min, 5);
  const ticks: number[] = [];
  for (let x = Math.ceil(min / step) * step; x <= max + step * 1e-9; x += step) ticks.push(Math.abs(x) < step * 1e-9 ? 0 : x);
  return ticks;
}

/** Powers of ten, at most about six; where these are few, also 2 and 5 times them. */
export function logTicks(min: number, max: number): number[] {
  const decades = Math.log10(max / min);
  const every = Math.max(1, Math.ceil(decades / 6));
  const ticks: number[] = [];
  for (let e = Math.floor(Math.log10(min)); 10 ** e <= max; e += every)
    for (const factor of decades < 2 ? [1, 2, 5] : [1]) ticks.push(Number((factor * 10 ** e).toPrecision(6)));
  return ticks.filter((x) => x >= min && x <= max);
}

export function makeScale(column: Column, isLog: boolean): Scale {
  const last = column.texts ? column.texts.length - 1 : 0;
  if (column.texts) {
    const position = (x: number) => (last ? x / last : x * 0 + 0.5);
    const ticks = column.texts.map((text, i) => ({ position: position(i), text }));
    return { column, isLog: false, position, value: (p) => Math.round(p * last), ticks };
  }
  const { min, max } = column;
  if (!(max > min)) {
    const ticks = max === min ? [{ position: 0.5, text: metric(min) }] : [];
    return { column, isLog: false, position: (x) => x * 0 + 0.5, value: () => min, ticks };
  }
  const to = isLog ? Math.log : (x: number) => x;
  const from = isLog ? Math.exp : (x: number) => x;
  const low = to(min);
  const span = to(max) - low;
  const position = (x: number) => (to(x) - low) / span;
  const numbers = isLog ? logTicks(min, max) : linearTicks(min, max);
  return {
    column,
    isLog,
    position,
    value: (p) => from(low + p * span),
    ticks: numbers.map((x) => ({ position: position(x), text: metric(Number(x.toPrecision(6))) })),
  };
}
