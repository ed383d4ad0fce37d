// SPDX-License-Identifier: Apache-2.0
// A browser notification when a run ends while this page is open.
import { useEffect, useRef, useState } from "preact/hooks";
import { getRuns, type Run } from "./api";
import { metric } from "./format";
import { useLive } from "./live";

const KEY = "hopyard-notices";
const isOn = () => "Notification" in window && Notification.permission === "granted" && localStorage.getItem(KEY) === "on";
const isOver = (r: Run) => r.state !== "running" && r.state !== "waiting";

export function NotificationSwitch() {
  const [on, setOn] = useState(isOn);
  if (!("Notification" in window)) return null;
  const change = async (wanted: boolean) => {
    const allowed = wanted && (await Notification.requestPermission()) === "granted";
    localStorage.setItem(KEY, allowed ? "on" : "off");
    setOn(allowed);
  };
  return (
    <label>
      <input type="checkbox" checked={on} onChange={(e) => void change(e.currentTarget.checked)} /> Notify me when a run ends
    </label>
  );
}

/** Shows nothing itself. */
export function Notifications() {
  const { value } = useLive("notifications", getRuns);
  const running = useRef(new Set<string>()); // of all projects that have been shown
  useEffect(() => {
    for (const r of value?.runs ?? []) {
      const key = `${r.run} of ${value!.project}`;
      if (!isOver(r)) running.current.add(key);
      else if (running.current.delete(key) && isOn()) {
        const best = r.best_trial ? `, best ${r.metric}=${metric(r.best_value)}` : "";
        new Notification(`Run ${r.run} ${r.name ?? ""} is ${r.state}`, { body: `${r.done} done, ${r.failed} failed${best}` });
      }
    }
  }, [value]);
  return null;
}
