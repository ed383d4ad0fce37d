// SPDX-License-Identifier: Apache-2.0
// What the page shows, requested again whenever the store has changed.
import { useEffect, useRef, useState } from "preact/hooks";
import { currentProject } from "./address";
import { endpoint, getProjects, Refused } from "./api";

const RETRY_MS = 3000;

type Listener = () => void;
const listeners = new Set<Listener>();

// ---- tabs --------------------------------------------------------------------------------------------------------------

// A browser allows six connections to a server, over all tabs, so a hidden tab keeps none open.

/** Resolves when this tab is visible. */
export const whenVisible = (): Promise<void> =>
  new Promise((resolve) => {
    const check = () => {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", check);
      resolve();
    };
    document.addEventListener("visibilitychange", check);
    check();
  });

// ---- events ------------------------------------------------------------------------------------------------------------

/** Whether events arrive: "login" if the session has ended, "lost" if the server does not answer. */
export type Connection = "connected" | "lost" | "login";

const watchers = new Set<(state: Connection) => void>();
let connection: Connection = "connected";
let wasConnected = false; // otherwise each view says what is wrong
let source: EventSource | null = null;
let address = "";
let retry: ReturnType<typeof setTimeout> | undefined;

function setConnection(state: Connection): void {
  if (!wasConnected) return;
  connection = state;
  for (const watcher of watchers) watcher(state);
}

function disconnect(): void {
  clearTimeout(retry);
  source?.close();
  source = null;
}

/** The browser itself connects again, unless the server has refused. */
async function onError(failed: EventSource): Promise<void> {
  if (failed !== source) return;
  let state: Connection = "lost";
  if (failed.readyState === EventSource.CLOSED) {
    disconnect();
    retry = setTimeout(connect, RETRY_MS);
    try {
      await getProjects();
    } catch (error) {
      if (needsLogin(error as Error)) state = "login";
    }
  }
  if (source === null || source === failed) setConnection(state);
}

/** One connection, for the project that is shown. The server sends an event at once, so that everything is loaded again. */
function connect(): void {
  if (document.hidden || (source && address === endpoint("/events"))) return;
  disconnect();
  address = endpoint("/events");
  const events = new EventSource(address);
  source = events;
  events.addEventListener("open", () => setConnection("connected"));
  events.addEventListener("error", () => void onError(events));
  events.addEventListener("change", () => {
    for (const listener of listeners) listener();
  });
}

document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));

/** Calls `listener` at every change of the store; returns the function that ends it. */
function onChange(listener: Listener): () => void {
  listeners.add(listener);
  connect();
  return () => listeners.delete(listener);
}

export function useConnection(): Connection {
  const [state, setState] = useState(connection);
  useEffect(() => {
    watchers.add(setState);
    return () => {
      watchers.delete(setState);
    };
  }, []);
  return state;
}

export interface Live<T> {
  value?: T;
  error?: Error;
}

/**
 * The latest value of `load`, whose result depends on `key` alone. One request at a time: changes in between are one.
 * A value stays without an error while there is no connection: the page says so above its views (useConnection).
 */
export function useLive<T>(key: string, load: () => Promise<T>): Live<T> {
  const [state, setState] = useState<Live<T>>({});
  const latest = useRef(load);
  latest.current = load;
  useEffect(() => {
    let isCurrent = true;
    let isLoading = false;
    let isOutdated = false;
    const refresh = async () => {
      isOutdated = isLoading;
      if (isLoading) return;
      isLoading = true;
      try {
        const value = await latest.current();
        wasConnected = true;
        if (isCurrent) setState({ value });
      } catch (error) {
        const isConnection = !(error instanceof Refused) || needsLogin(error);
        if (isCurrent) setState((old) => (isConnection && old.value ? old : { value: old.value, error: error as Error }));
      }
      isLoading = false;
      if (isOutdated && isCurrent) void refresh();
    };
    setState({});
    void refresh();
    const end = onChange(() => void refresh());
    return () => {
      isCurrent = false;
      end();
    };
  }, [key, currentProject()]);
  return state;
}

/** Waits until `ms` have passed since the last call: for requests that are too costly to repeat at every change. */
export async function pace(last: { current: number }, ms: number): Promise<void> {
  const wait = last.current + ms - performance.now();
  if (last.current && wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
  last.current = performance.now();
}

export const needsLogin = (error?: Error): boolean => error instanceof Refused && error.status === 401;
