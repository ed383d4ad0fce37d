// SPDX-License-Identifier: Apache-2.0
// Names, tags and notes of runs and trials.
import { useState } from "preact/hooks";
import { changeRun, changeTrial, type Label, type Run } from "./api";
import { ConfirmDialog } from "./dialog";

export function Tags({ tags }: { tags: string[] }) {
  return (
    <>
      {tags.map((tag) => (
        <span key={tag} class="tag">
          {tag}
        </span>
      ))}
    </>
  );
}

const splitTags = (text: string) => [...new Set(text.split(/[,\n]/).map((t) => t.trim()).filter(Boolean))];

interface EditorProps {
  title: string;
  name?: string | null; // undefined: it has none
  label: Label;
  save: (change: Label & { name?: string | null }) => Promise<void>;
  onClose: () => void;
}

function Editor({ title, name, label, save, onClose }: EditorProps) {
  const [newName, setName] = useState(name ?? "");
  const [tags, setTags] = useState(label.tags.join(", "));
  const [note, setNote] = useState(label.note ?? "");
  const act = () =>
    save({ tags: splitTags(tags), note: note || null, ...(name === undefined ? {} : { name: newName || null }) });
  return (
    <ConfirmDialog title={title} confirm="Save" act={act} onClose={onClose}>
      <div class="fields">
        {name !== undefined && (
          <>
            <label for="label-name">Name</label>
            <input id="label-name" maxLength={200} value={newName} onInput={(e) => setName(e.currentTarget.value)} />
          </>
        )}
        <label for="label-tags">Tags</label>
        <div>
          <input id="label-tags" value={tags} onInput={(e) => setTags(e.currentTarget.value)} />
          <small>separated by commas</small>
        </div>
        <label for="label-note">Note</label>
        <textarea id="label-note" value={note} onInput={(e) => setNote(e.currentTarget.value)} />
      </div>
    </ConfirmDialog>
  );
}

/** A button that opens the editor. */
export function EditRun({ run }: { run: Run }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <button onClick={() => setOpen(true)}>Edit…</button>
      {isOpen && (
        <Editor
          title={`Run ${run.run}`}
          name={run.name}
          label={run}
          save={(change) => changeRun(run.run, change)}
          onClose={() => setOpen(false)}
        />
      )}
    </>
  );
}

export function EditTrial({ run, trial, label }: { run: string; trial: string; label: Label }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <button onClick={() => setOpen(true)}>Edit…</button>
      {isOpen && (
        <Editor
          title={`Trial ${trial} of run ${run}`}
          label={label}
          save={(change) => changeTrial(run, trial, change)}
          onClose={() => setOpen(false)}
        />
      )}
    </>
  );
}
