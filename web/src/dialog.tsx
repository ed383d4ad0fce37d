// SPDX-License-Identifier: Apache-2.0
// Modal dialogs: confirmations and forms. The browser keeps the focus inside, and Escape closes them.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import "./dialog.css";
import { Failure } from "./parts";

export function Dialog({ title, onClose, children }: { title: string; onClose: () => void; children: ComponentChildren }) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => element.current?.showModal(), []);
  return (
    <dialog ref={element} aria-label={title} onClose={onClose}>
      <h2>{title}</h2>
      {children}
    </dialog>
  );
}

interface ConfirmDialogProps {
  title: string;
  confirm: string; // the text of the button
  isDanger?: boolean;
  act: () => Promise<unknown>;
  onClose: () => void;
  children?: ComponentChildren;
}

/** Acts after a confirmation. It stays open and shows the reason if that fails. */
export function ConfirmDialog({ title, confirm, isDanger, act, onClose, children }: ConfirmDialogProps) {
  const [error, setError] = useState<Error>();
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await act();
      onClose();
    } catch (e) {
      setError(e as Error);
      setBusy(false);
    }
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <form onSubmit={(e) => void submit(e)}>
        {children}
        <Failure error={error} />
        <p class="buttons">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class={isDanger ? "danger" : "primary"} disabled={isBusy}>
            {confirm}
          </button>
        </p>
      </form>
    </Dialog>
  );
}
