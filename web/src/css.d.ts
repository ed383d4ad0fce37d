// SPDX-License-Identifier: Apache-2.0
// esbuild bundles style sheets; they export nothing.
declare module "*.css";
