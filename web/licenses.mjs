// Writes the licences of the packages that the page is built from: those of package-lock.json that are not for development.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";

const { packages } = JSON.parse(readFileSync("package-lock.json", "utf8"));
const byText = new Map();
for (const [folder, { version, dev }] of Object.entries(packages)) {
  if (folder === "" || dev) continue;
  const { name, license, author } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
  const file = readdirSync(folder).find((each) => /^licen[cs]e(\.|$)/i.test(each));
  const text = file ? readFileSync(`${folder}/${file}`, "utf8").replaceAll("\r", "").trim() : "";
  const by = text ? "" : `, by ${author?.name ?? author ?? "its authors"}; the package has no text of its licence`;
  byText.set(text, [...(byText.get(text) ?? []), `${name} ${version} (${license}${by})`]);
}
const sections = [...byText].map(([text, names]) => `${[...new Set(names)].sort().join("\n")}\n\n${text}`.trim());
const head = "The chat page is built from these packages. Made by scripts/build-page.";
writeFileSync("../src/corral/chat/static/licenses.txt", `${[head, ...sections.sort()].join("\n\n---\n\n")}\n`);
