// SPDX-License-Identifier: Apache-2.0
// What the page shows, asked for again whenever the store has changed.
import { useEffect, useRef, useState } from "preact/hooks";
import { currentProject } from "./address";
import { endpoint, Refused } from "./api";

type Listener = () => void;
const listeners = new Set<Listener>();
let source: EventSource | null = null;
let address = "";

/** One connection, for the project that is shown. */
function connect(): void {
  if (source && address === endpoint("/events")) return;
  source?.close();
  address = endpoint("/events");
  source = new EventSource(address);
  source.addEventListener("change", () => {
    for (const listener of listeners) listener();
  });
}

/** Calls `listener` at every change of the store; returns the function that ends it. */
function onChange(listener: Listener): () => void {
  listeners.add(listener);
  connect();
  return () => listeners.delete(listener);
}

export interface Live<T> {
  value?: T;
  error?: Error;
}

/** The latest value of `load`, whose result depends on `key` alone. One request at a time: changes in between are one. */
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
        if (isCurrent) setState({ value });
      } catch (error) {
        if (isCurrent) setState((old) => ({ value: old.value, error: error as Error }));
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
