// SPDX-License-Identifier: Apache-2.0
// Files of the project or of a trial, by the server's API. Paths are in percent escapes: names may be any bytes.
import { endpoint, request } from "./api";

export interface Entry {
  name: string;
  encoded: string;
  type: "file" | "directory" | "share" | "link" | "other";
  size?: number;
  modified?: number;
  owner?: string;
  mode?: number;
}

export interface Directory {
  path: string;
  address: string;
  count: number;
  entries: Entry[];
}

export interface Feature {
  name: string;
  type: string;
  count: number;
  is_sequence: boolean;
  values: (number | string | null)[];
}

export interface Preview {
  kind: "text" | "table" | "image" | "parquet" | "records" | "binary";
  path: string;
  address: string;
  size: number;
  modified: number;
  cut?: boolean;
  note?: string | null;
  text?: string;
  rows?: string[][];
  row_count?: number;
  row_groups?: number;
  created_by?: string | null;
  columns?: { name: string; type: string | null; meaning: string | null; repetition: string | null }[];
  examples?: { bytes: number; features: Feature[] }[];
}

export interface ModelVersion {
  version: number;
  path: string;
  size: number;
  files: number;
  metrics: Record<string, number>;
  description: string | null;
  user: string | null;
  created: number | null;
  run: number | null;
  trial: number | null;
}

export const getModels = () => request<{ models: { name: string; versions: ModelVersion[] }[] }>("/models");

/** "Resources/a%20b", of names in percent escapes. */
export const join = (...names: string[]): string => names.filter(Boolean).join("/");

export const encodePath = (names: string[]): string => names.map(encodeURIComponent).join("/");

/** Reads files: of a project or of a trial. */
export class FileApi {
  constructor(private readonly base: string) {}

  list(path: string, sort: string, offset: number, limit: number): Promise<Directory> {
    return request(`${this.base}?path=${path}&sort=${sort}&offset=${offset}&limit=${limit}`);
  }

  preview(path: string): Promise<Preview> {
    return request(`${this.base}/preview?path=${path}`);
  }

  /** The address of a file, or of a directory as an archive. */
  content(path: string): string {
    return endpoint(`${this.base}/content?path=${path}`);
  }
}

export const projectFiles = new FileApi("/files");
export const trialFiles = (run: string, trial: string) =>
  new FileApi(`/runs/${encodeURIComponent(run)}/trials/${encodeURIComponent(trial)}/files`);

const post = (path: string) => request<void>(path, { method: "POST" });

export const makeFolder = (path: string) => post(`/files/folder?path=${path}`);
export const removeFile = (path: string, recursive: boolean) =>
  post(`/files/delete?path=${path}${recursive ? "&recursive=1" : ""}`);
export const moveFile = (from: string, to: string, overwrite: boolean) =>
  post(`/files/move?from=${from}&to=${to}${overwrite ? "&overwrite=1" : ""}`);
