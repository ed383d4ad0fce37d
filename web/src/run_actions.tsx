// SPDX-License-Identifier: Apache-2.0
// Actions on a run: stop, resume, delete, edit; with confirmations.
import { useState } from "preact/hooks";
import { go, to } from "./address";
import { removeRun, resumeRun, type Run, stopRun } from "./api";
import { ConfirmDialog } from "./dialog";
import { count } from "./format";
import { EditRun } from "./labels";

type Action = "stop" | "resume" | "delete";

const isRunning = (run: Run) => run.state === "running" || run.state === "waiting";
const trialsOf = (run: Run) => run.running + run.done + run.failed + run.stopped + run.pruned + run.paused;

/** Whether trials are left to run, or have failed. */
function canResume(run: Run): boolean {
  if (isRunning(run)) return false;
  return run.state !== "done" || run.failed > 0 || run.stopped > 0;
}

function ActionDialog({ action, run, onClose }: { action: Action; run: Run; onClose: () => void }) {
  if (action === "stop")
    return (
      <ConfirmDialog
        title={`Stop run ${run.run}?`}
        confirm="Stop the run"
        isDanger
        act={() => stopRun(run.run)}
        onClose={onClose}
      >
        <p>
          {run.running === 1 ? "One running trial" : `${count(run.running)} running trials`} will be stopped. You can
          resume the run later.
        </p>
      </ConfirmDialog>
    );
  if (action === "resume")
    return (
      <ConfirmDialog
        title={`Resume run ${run.run}?`}
        confirm="Resume the run"
        act={() => resumeRun(run.run)}
        onClose={onClose}
      >
        <p>Unfinished trials run again, and so do failed ones, except in an evolution.</p>
      </ConfirmDialog>
    );
  const remove = async () => {
    await removeRun(run.run);
    go(to(""));
  };
  return (
    <ConfirmDialog title={`Delete run ${run.run}?`} confirm="Delete the run" isDanger act={remove} onClose={onClose}>
      <p>
        Its {count(trialsOf(run))} trials, their output and files are removed. This cannot be undone.
      </p>
    </ConfirmDialog>
  );
}

export function RunActions({ run }: { run: Run }) {
  const [action, setAction] = useState<Action | null>(null);
  return (
    <span class="actions">
      <EditRun run={run} /> {isRunning(run) && <button onClick={() => setAction("stop")}>Stop…</button>}{" "}
      {canResume(run) && <button onClick={() => setAction("resume")}>Resume…</button>}{" "}
      {!isRunning(run) && <button onClick={() => setAction("delete")}>Delete…</button>}
      {action && <ActionDialog action={action} run={run} onClose={() => setAction(null)} />}
    </span>
  );
}
