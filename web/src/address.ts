// SPDX-License-Identifier: Apache-2.0
// The view's state is in the address: a path for what is shown, and parameters for how.
import { useEffect, useState } from "preact/hooks";

const changed = new EventTarget();

/** The path below which the server shows the page, with a slash at its end. */
export const BASE = new URL(document.baseURI).pathname;

export interface Address {
  project: string | null; // the ID of another project than the server's own
  path: string[]; // ["runs", "7"]
  params: URLSearchParams;
}

function read(): Address {
  const below = location.pathname.startsWith(BASE) ? location.pathname.slice(BASE.length) : "";
  const path = below.split("/").filter(Boolean).map(decodeURIComponent);
  const project = path[0] === "p" && path[1] ? path[1] : null;
  return { project, path: project ? path.slice(2) : path, params: new URLSearchParams(location.search) };
}

export const currentProject = (): string | null => read().project;

/** The address of a view of this project: to("runs/7"). Every link of the page is made with it. */
export function to(path: string): string {
  return inProject(currentProject(), path);
}

/** The same in another project; null is the server's own. */
export function inProject(project: string | null, path: string): string {
  return BASE + (project ? `p/${project}/` : "") + path;
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
  if (link.origin !== location.origin || !link.pathname.startsWith(BASE) || link.target || link.hasAttribute("download")) return;
  event.preventDefault();
  go(link.pathname + link.search);
}
