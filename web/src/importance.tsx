// SPDX-License-Identifier: Apache-2.0
// How much of the metric's variance each hyperparameter explains.
import { useRef } from "preact/hooks";
import { getImportance } from "./api";
import { count } from "./format";
import { pace, useLive } from "./live";
import { Failure } from "./parts";

const QUIET_MS = 5000; // between two requests

const percent = (share: number) => `${(share * 100).toFixed(1)}%`;

export function Importance({ run }: { run: string }) {
  const last = useRef(0);
  const { value, error } = useLive(`importance ${run}`, async () => {
    await pace(last, QUIET_MS);
    return getImportance(run);
  });
  const all = value?.importance ?? [];
  const pairs = (value?.pairs ?? []).filter((p) => p.share >= 0.01).slice(0, 3);
  const most = Math.max(...all.map((x) => x.share), 1e-9);
  return (
    <section>
      <h2>Importance of hyperparameters</h2>
      <Failure error={error} />
      {value?.why && <p class="dim">{value.why}</p>}
      <table class="bars">
        <tbody>
          {all.map(({ name, share }) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td>
                <span class="bar-of" style={{ width: `${(share / most) * 100}%` }} />
              </td>
              <td class="right">{percent(share)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {pairs.length > 0 && (
        <p class="dim">
          Pairs: {pairs.map((p) => `${p.names.join(" and ")} ${percent(p.share)}`).join(", ")}
        </p>
      )}
      {all.length > 0 && (
        <p class="dim">
          {value!.method}, {count(value!.used)} of {count(value!.trials)} trials
        </p>
      )}
    </section>
  );
}
