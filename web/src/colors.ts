// SPDX-License-Identifier: Apache-2.0
// Colors of values and of series, for both schemes.

type Rgb = [number, number, number];

function between(stops: Rgb[], t: number): Rgb {
  const at = Math.min(Math.max(t, 0), 1) * (stops.length - 1);
  const i = Math.min(Math.floor(at), stops.length - 2);
  const part = at - i;
  return [0, 1, 2].map((k) => Math.round(stops[i]![k]! * (1 - part) + stops[i + 1]![k]! * part)) as Rgb;
}

const LIGHT: Rgb[] = [[214, 222, 230], [142, 178, 214], [66, 128, 190], [20, 80, 150], [6, 40, 92]];
const DARK: Rgb[] = [[44, 56, 66], [46, 94, 140], [70, 146, 210], [140, 196, 244], [232, 244, 255]];
const VIRIDIS: Rgb[] = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

/** From a color near the background (0, the worst) to one far from it (1, the best). */
export function goodness(t: number, scheme: string): string {
  return `rgb(${between(scheme === "dark" ? DARK : LIGHT, t).join(",")})`;
}

/** For areas: viridis. */
export const heat = (t: number): Rgb => between(VIRIDIS, t);

/** Of the n-th of several lines. */
export function seriesColor(n: number, scheme: string): string {
  const hue = (n * 137.508 + 210) % 360; // the golden angle: neighbors differ
  return scheme === "dark" ? `hsl(${hue} 70% 68%)` : `hsl(${hue} 70% 38%)`;
}
