// SPDX-License-Identifier: Apache-2.0
// Points of charts that are trials: the nearest one shows its number and its value, and a click opens it.
import type uPlot from "uplot";
import { go, to } from "./address";
import type { Run } from "./api";
import { capital, metric, unitName } from "./format";
import type { Trials } from "./trials";

const NEAR = 12; // pixels

/** "Trial 7: acc=0.83" */
export const pointText = (run: Run, trials: Trials, i: number): string =>
  `${capital(unitName(run, trials.number(i)))}: ${run.metric}=${metric(trials.column("value", run).numbers[i])}`;

export const openPoint = (run: Run, trials: Trials, i: number): void => go(to(`runs/${run.run}/trials/${trials.number(i)}`));

/** The index of the point that is nearest to (x, y), in pixels; -1: none is near. */
export function nearest(count: number, at: (n: number) => [number, number], x: number, y: number): number {
  let found = -1;
  let least = NEAR * NEAR;
  for (let n = 0; n < count; n++) {
    const [px, py] = at(n);
    const distance = (px - x) ** 2 + (py - y) ** 2;
    if (distance >= least) continue;
    found = n;
    least = distance;
  }
  return found;
}

export interface Points {
  run: Run;
  trials: Trials;
  rows: ArrayLike<number>; // the index of the trial of each point
}

function trialAt(u: uPlot, rows: ArrayLike<number>): { i: number; left: number; top: number } | null {
  const [xs, ys] = u.data as [number[], number[]];
  const at = (n: number): [number, number] => [u.valToPos(xs[n]!, "x"), u.valToPos(ys[n]!, "y")];
  const { left: x = -1, top: y = -1 } = u.cursor; // negative: outside
  const n = x < 0 || y < 0 ? -1 : nearest(xs.length, at, x, y);
  if (n < 0) return null;
  const [left, top] = at(n);
  return { i: rows[n]!, left, top };
}

/** For a chart whose only series are trials; `latest` returns those that are drawn. */
export function pointPlugin(latest: () => Points): uPlot.Plugin {
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  const show = (u: uPlot) => {
    const { run, trials, rows } = latest();
    const found = trialAt(u, rows);
    tip.hidden = !found;
    u.over.classList.toggle("on-point", !!found);
    if (!found) return;
    tip.textContent = pointText(run, trials, found.i);
    tip.style.left = `${found.left}px`;
    tip.style.top = `${found.top}px`;
    tip.classList.toggle("before", found.left > u.over.clientWidth / 2);
  };
  const open = (u: uPlot) => {
    const { run, trials, rows } = latest();
    const found = trialAt(u, rows);
    if (found) openPoint(run, trials, found.i);
  };
  const init = (u: uPlot) => {
    u.over.append(tip);
    u.over.addEventListener("click", () => open(u));
  };
  return { hooks: { init, setCursor: show } };
}
