// SPDX-License-Identifier: Apache-2.0
// TensorBoard and Jupyter inside the page: processes of the server, shown in a frame with an origin of its own.
import { useEffect, useState } from "preact/hooks";
import { Refused, request } from "./api";
import "./apps.css";
import { Failure, useNow } from "./parts";

export interface AppRow {
  id: number;
  kind: string;
  key: string;
  state: "starting" | "ready" | "failed";
  message: string | null; // why it has failed
  details: unknown;
}

/** `enter` opens the app once and logs the browser in; after that, it can use `url`. */
interface Opened {
  enter: string;
  url: string;
}

export const getApps = () => request<{ apps: AppRow[] }>("/apps");
export const getApp = (id: number) => request<AppRow>(`/apps/${id}`);
export const endApp = (id: number) => request<void>(`/apps/${id}`, { method: "DELETE" });
const openApp = (id: number) => request<Opened>(`/apps/${id}/open`, { method: "POST" });

const POLL_MS = 400; // while it starts
const KEEP_MS = 60_000; // an app that is not polled is ended after a while

export interface AppState {
  app?: AppRow;
  opened?: Opened;
  error?: Error;
  isGone?: boolean; // it was ready, and has ended
}

const sleep = (ms: number) => new Promise((done) => setTimeout(done, ms));

/** Follows an app from its start to its end; `show` gets each change until `isCurrent` is false. */
async function follow(start: () => Promise<AppRow>, show: (state: AppState) => void, isCurrent: () => boolean) {
  let app = await start();
  let opened: Opened | undefined;
  while (isCurrent()) {
    if (app.state === "ready" && !opened) opened = await openApp(app.id);
    if (!isCurrent()) return;
    show({ app, opened, isGone: opened !== undefined && app.state === "failed" });
    if (app.state === "failed") return;
    await sleep(app.state === "ready" ? KEEP_MS : POLL_MS);
    if (!isCurrent()) return;
    try {
      app = await getApp(app.id);
    } catch (error) {
      if (!(error instanceof Refused) || error.status !== 404) throw error;
      show({ app, isGone: true });
      return;
    }
  }
}

/** Starts (or finds) an app, whenever `key` changes; null: none. */
export function useApp(key: string | null, start: () => Promise<AppRow>): AppState {
  const [state, setState] = useState<AppState>({});
  useEffect(() => {
    let isCurrent = true;
    setState({});
    if (key !== null)
      follow(start, setState, () => isCurrent).catch((error: Error) => {
        if (isCurrent) setState((old) => ({ ...old, error }));
      });
    return () => {
      isCurrent = false;
    };
  }, [key]);
  return state;
}

/** "Starting TensorBoard… 7 s" */
function Waiting({ title }: { title: string }) {
  const [since] = useState(Date.now);
  const seconds = Math.floor((useNow() - since) / 1000);
  return (
    <p class="app-wait" role="status">
      <progress aria-label={`${title} is starting`} />
      Starting {title}…{seconds > 1 ? ` ${seconds} s` : ""}
    </p>
  );
}

/** The app, or its state. Scripts in the frame have another origin than the page: they cannot use its session, and the
 * sandbox keeps them from navigating it. */
export function AppFrame({ title, state, onRestart }: { title: string; state: AppState; onRestart: () => void }) {
  const { app, opened, error, isGone } = state;
  if (error) return <Failure error={error} />;
  if (isGone || app?.state === "failed")
    return (
      <div class="app-message">
        <p class={isGone ? "" : "failure"} role="alert">
          {isGone ? `${title} has ended.` : `${title} could not start: ${app!.message}`}
        </p>
        <button onClick={onRestart}>Start again</button>
      </div>
    );
  if (!opened) return <Waiting title={title} />;
  return (
    <iframe
      class="app-frame"
      title={title}
      src={opened.enter}
      sandbox="allow-scripts allow-same-origin allow-forms allow-popups allow-popups-to-escape-sandbox allow-downloads allow-modals"
      allow="clipboard-read; clipboard-write; fullscreen"
      referrerpolicy="no-referrer"
    />
  );
}

/** For the bar above the frame. */
export function AppLinks({ state }: { state: AppState }) {
  if (!state.opened || state.isGone) return null;
  return (
    <a href={state.opened.url} target="_blank" rel="noopener">
      Open in a new tab
    </a>
  );
}
