// SPDX-License-Identifier: Apache-2.0
// A browser notification when a run of any project ends while a page is open.
import { useEffect, useState } from "preact/hooks";
import { getProjects, getRunsOf, type Run } from "./api";
import { metric } from "./format";

const KEY = "hopyard-notices";
const SWITCHED = "hopyard-notices-switched";
const EVERY_MS = 2000;
const isOn = () => "Notification" in window && Notification.permission === "granted" && localStorage.getItem(KEY) === "on";
const isOver = (r: Run) => r.state !== "running" && r.state !== "waiting";

export function NotificationSwitch() {
  const [on, setOn] = useState(isOn);
  if (!("Notification" in window)) return null;
  const change = async (wanted: boolean) => {
    const allowed = wanted && (await Notification.requestPermission()) === "granted";
    localStorage.setItem(KEY, allowed ? "on" : "off");
    setOn(allowed);
    dispatchEvent(new Event(SWITCHED));
  };
  return (
    <label>
      <input type="checkbox" checked={on} onChange={(e) => void change(e.currentTarget.checked)} /> Notify me when a run ends
    </label>
  );
}

/** Runs by their keys; whether each is over. */
type Known = Map<string, boolean>;

function notify(run: Run): void {
  const best = run.best_trial ? `, best ${run.metric}=${metric(run.best_value)}` : "";
  new Notification(`Run ${run.run} ${run.name ?? ""} is ${run.state}`, {
    body: `${run.done} done, ${run.failed} failed${best}`,
    tag: `hopyard-${run.run}-${run.logdir ?? ""}`, // one for all tabs
  });
}

/** Runs that ended before `since` are not news. */
async function checkProject(id: string, known: Known, since: number): Promise<void> {
  for (const run of (await getRunsOf(id)).runs) {
    const key = `${id} ${run.run}`;
    const wasRunning = known.get(key) === false;
    const isNew = !known.has(key) && Date.parse(run.ended ?? "") > since;
    if (isOver(run) && (wasRunning || isNew)) notify(run);
    known.set(key, isOver(run));
  }
}

/** All projects of the user, whatever this tab shows, and also while it is hidden. Shows nothing itself. */
export function Notifications() {
  useEffect(() => {
    const known: Known = new Map();
    let since = Date.now();
    const pending = new Set<string>(); // a project whose file system does not answer must not hold up the others
    const check = async (id: string) => {
      if (pending.has(id)) return;
      pending.add(id);
      await checkProject(id, known, since).catch(() => undefined); // live.ts shows that the server does not answer
      pending.delete(id);
    };
    const checkAll = async () => {
      if (!isOn()) {
        known.clear();
        since = Date.now();
        return;
      }
      const found = await getProjects().catch(() => null);
      for (const project of found?.projects ?? []) void check(project.id);
    };
    const timer = setInterval(() => void checkAll(), EVERY_MS);
    addEventListener(SWITCHED, checkAll);
    void checkAll();
    return () => {
      clearInterval(timer);
      removeEventListener(SWITCHED, checkAll);
    };
  }, []);
  return null;
}
