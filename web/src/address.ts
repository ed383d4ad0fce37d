// SPDX-License-Identifier: Apache-2.0
// The view's state is in the address: a path for what is shown, and parameters for how.
import { useEffect, useState } from "preact/hooks";

const changed = new EventTarget();

export interface Address {
  path: string[]; // ["runs", "7"]
  params: URLSearchParams;
}

function read(): Address {
  return {
    path: location.pathname.split("/").filter(Boolean).map(decodeURIComponent),
    params: new URLSearchParams(location.search),
  };
}

export function go(href: string): void {
  history.pushState(null, "", href);
  changed.dispatchEvent(new Event("change"));
  scrollTo(0, 0);
}

/** Sets parameters of this view, without a new entry in the history; null removes one. */
export function setParams(values: Record<string, string | null>): void {
  const params = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(values)) {
    if (value === null) params.delete(name);
    else params.set(name, value);
  }
  const query = params.toString();
  history.replaceState(null, "", location.pathname + (query ? `?${query}` : ""));
  changed.dispatchEvent(new Event("change"));
}

export function useAddress(): Address {
  const [address, setAddress] = useState(read);
  useEffect(() => {
    const update = () => setAddress(read());
    changed.addEventListener("change", update);
    addEventListener("popstate", update);
    return () => {
      changed.removeEventListener("change", update);
      removeEventListener("popstate", update);
    };
  }, []);
  return address;
}

/** Follows links within the page without loading it again. */
export function followLinks(event: MouseEvent): void {
  const link = (event.target as Element).closest?.("a");
  if (!link || event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey) return;
  if (link.origin !== location.origin || link.target || link.hasAttribute("download")) return;
  event.preventDefault();
  go(link.pathname + link.search);
}
