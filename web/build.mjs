// SPDX-License-Identifier: Apache-2.0
// Bundles the page: node build.mjs OUT DEPFILE writes OUT/app.js and OUT/app.css, and for ninja what they are made of.
import { writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = path.dirname(fileURLToPath(import.meta.url));

const [out, depfile] = process.argv.slice(2);
const { metafile } = await build({
  entryPoints: { app: path.join(root, "src/main.tsx") },
  outdir: out,
  metafile: true,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "inline",
  logLevel: "warning",
});
const inputs = Object.keys(metafile.inputs).map((file) => file.replaceAll(" ", "\\ "));
writeFileSync(depfile, `${path.join(out, "app.js")}: ${inputs.join(" ")}\n`);
