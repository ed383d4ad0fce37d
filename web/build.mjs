// SPDX-License-Identifier: Apache-2.0
// Bundles the page: node build.mjs OUT writes OUT/app.js and OUT/app.css.
import path from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = path.dirname(fileURLToPath(import.meta.url));

await build({
  entryPoints: { app: path.join(root, "src/main.tsx") },
  outdir: process.argv[2],
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "inline",
  logLevel: "warning",
});
