// SPDX-License-Identifier: Apache-2.0
// What several pages use.
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Run } from "./api";
import { count } from "./format";
import { needsLogin } from "./live";

/** The time, renewed every second. */
export function useNow(): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}

/** The title of the window: "Run 7 – hopyard". */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} – hopyard`;
  }, [title]);
}

export function State({ state }: { state: string }) {
  return <span class={`state ${state}`}>{state}</span>;
}

interface BarProps {
  run: Run;
  over: number;
  total: number;
}

function ProgressBar({ run, over, total }: BarProps) {
  return (
    <span class="track" role="progressbar" aria-label="Trials that are over" aria-valuemin={0} aria-valuemax={total} aria-valuenow={over}>
      {(["done", "failed", "pruned", "stopped"] as const).map(
        (state) => run[state] > 0 && <span key={state} class={state} style={{ width: `${(100 * run[state]) / Math.max(total, 1)}%` }} />,
      )}
    </span>
  );
}

export function Progress({ run }: { run: Run }) {
  const over = run.done + run.failed + run.stopped + run.pruned;
  const total = run.ranks ?? run.total;
  const text = total === null ? count(over) : `${count(over)} / ${count(total)}`;
  return (
    <span class="progress">
      {total !== null && <ProgressBar run={run} over={over} total={total} />}
      {text}
      {run.failed > 0 && <span class="bad"> {count(run.failed)} failed</span>}
    </span>
  );
}

export function Failure({ error }: { error?: Error }) {
  if (!error) return null;
  return (
    <p class="failure" role="alert">
      {needsLogin(error) ? "This browser is not logged in: open the address that `hopyard ui` has printed." : error.message}
    </p>
  );
}

/** What may be wider than the window, or too long for it. Its name and place in the tab order let a keyboard scroll it. */
export function Scroll({ label, class: more, children }: { label: string; class?: string; children: ComponentChildren }) {
  return (
    <div class={more ? `scroll ${more}` : "scroll"} role="region" aria-label={label} tabIndex={0}>
      {children}
    </div>
  );
}

/** Browsers have a clipboard only for HTTPS and this machine. */
async function copyText(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

/** Text with a button that copies it. */
export function Copy({ text }: { text: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await copyText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 2000);
  };
  return (
    <span class="copy">
      <code>{text}</code>
      <button onClick={() => void copy()}>{isCopied ? "Copied" : "Copy"}</button>
    </span>
  );
}

export function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return children ? (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  ) : null;
}
