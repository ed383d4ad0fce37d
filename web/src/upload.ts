// SPDX-License-Identifier: Apache-2.0
// Uploads: files that are sent in pieces, while other views are shown, too.
import { useEffect, useState } from "preact/hooks";
import { endpoint, Refused } from "./api";

const AT_ONCE = 2;
const FIRST_PIECE = 1 << 20;
const TRIES = 6;

export type UploadState = "waiting" | "running" | "paused" | "exists" | "failed" | "done";

export interface Upload {
  id: number;
  name: string;
  directory: string; // its path in percent escapes
  file: File;
  address: string; // of the endpoint: the project is the one that was shown when the upload began
  state: UploadState;
  sent: number;
  overwrite: boolean;
  error?: string;
  abort?: AbortController;
}

const uploads: Upload[] = [];
const changed = new EventTarget();
let lastId = 0;

function update(upload: Upload, values: Partial<Upload>): void {
  Object.assign(upload, values);
  changed.dispatchEvent(new Event("change"));
}

/** All uploads of this page, and a number that grows whenever one is complete. */
export function useUploads(): { uploads: Upload[]; completed: number } {
  const count = () => uploads.filter((u) => u.state === "done").length;
  const [state, setState] = useState({ uploads: [...uploads], completed: count() });
  useEffect(() => {
    const renew = () => setState({ uploads: [...uploads], completed: count() });
    changed.addEventListener("change", renew);
    return () => changed.removeEventListener("change", renew);
  }, []);
  return state;
}

export function addUploads(directory: string, files: Iterable<File>): void {
  for (const file of files) {
    const path = [directory, encodeURIComponent(file.name)].filter(Boolean).join("/");
    const address = endpoint(`/files/uploads?path=${path}&size=${file.size}&modified=${file.lastModified}`);
    uploads.push({ id: ++lastId, name: file.name, directory, file, address, state: "waiting", sent: 0, overwrite: false });
  }
  startNext();
}

export function pause(upload: Upload): void {
  upload.abort?.abort();
  update(upload, { state: "paused" });
  startNext();
}

/** Continues where the server has it; `overwrite` replaces a file of that name. */
export function resume(upload: Upload, overwrite = upload.overwrite): void {
  update(upload, { state: "waiting", overwrite, error: undefined });
  startNext();
}

/** Removes it from the list, and what the server has of it. */
export function dismiss(upload: Upload): void {
  upload.abort?.abort();
  uploads.splice(uploads.indexOf(upload), 1);
  if (upload.state !== "done" && upload.sent > 0)
    fetch(upload.address, { method: "DELETE" }).catch(() => undefined); // the server removes it after a day
  update(upload, { state: "paused" });
  startNext();
}

function startNext(): void {
  const running = uploads.filter((u) => u.state === "running").length;
  for (const upload of uploads.filter((u) => u.state === "waiting").slice(0, AT_ONCE - running)) void run(upload);
  changed.dispatchEvent(new Event("change"));
}

async function run(upload: Upload): Promise<void> {
  const abort = new AbortController();
  update(upload, { state: "running", abort });
  try {
    await send(upload, abort.signal);
    update(upload, { state: "done", sent: upload.file.size });
  } catch (error) {
    if (!abort.signal.aborted) {
      const exists = error instanceof Refused && error.status === 409;
      update(upload, { state: exists ? "exists" : "failed", error: (error as Error).message });
    }
  }
  startNext();
}

interface Step {
  status: number;
  offset?: number;
  piece?: number;
  complete?: boolean;
  error?: string;
}

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** One request. Temporary errors (no connection, a busy server) are retried. */
async function step(upload: Upload, method: string, query: string, body: Blob | null, signal: AbortSignal): Promise<Step> {
  for (let tries = 1; ; tries++) {
    try {
      const reply = await fetch(`${upload.address}${upload.overwrite ? "&overwrite=1" : ""}${query}`, { method, body, signal });
      const value = { ...(await reply.json()), status: reply.status } as Step;
      if (reply.status !== 503 || tries === TRIES) return value;
    } catch (error) {
      if (signal.aborted || tries === TRIES) throw error;
    }
    await sleep(500 * 2 ** tries);
    signal.throwIfAborted();
  }
}

async function send(upload: Upload, signal: AbortSignal): Promise<void> {
  const start = await step(upload, "POST", "", null, signal);
  if (start.status !== 200) throw new Refused(start.status, start.error ?? "the upload failed");
  let offset = start.offset!;
  let size = FIRST_PIECE;
  for (;;) {
    update(upload, { sent: offset });
    const began = performance.now();
    const piece = upload.file.slice(offset, offset + size);
    const reply = await step(upload, "PATCH", `&offset=${offset}`, piece, signal);
    if (reply.complete) return;
    if (reply.status !== 200 && reply.offset === undefined) throw new Refused(reply.status, reply.error ?? "the upload failed");
    offset = reply.offset!; // also when the server has another one
    if (performance.now() - began < 500) size = Math.min(2 * size, start.piece!);
  }
}
