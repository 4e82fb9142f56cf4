//// shape-arrow-tools
async (tools) => {
  const cities = await tools.list_cities();
  return cities.length;
}
//// shape-arrow-destructured
async ({ list_cities, weather }) => {
  const [city] = await list_cities();
  return (await weather.current({ city })).temperature;
}
//// shape-arrow-no-parameters
async () => {
  const { data } = await codemode.crm.find_contacts({ limit: 2 });
  return data.length;
};
//// shape-main-destructured
async function main({ github }) {
  const issues = await github.list_issues({ repo: "acme/house" });
  return issues.length;
}
//// shape-export-default
export default async function (tools) {
  return await tools.add({ a: 2, b: 3 });
}
//// shape-export-default-arrow
export default async ({ tools: t, add }: any) => {
  const sum = await add({ a: 2, b: 3 });
  return sum;
};
//// shape-export-default-typed
type Tools = typeof tools;
export default async function run(t: Tools) {
  const issues = await t.github.list_issues({ repo: "acme/house" });
  return issues.filter((i) => i.comments > 0).length;
}
//// shape-export-helpers
export interface Result { n: number }
export const double = (n: number) => n * 2;
export async function main(): Promise<Result> {
  return { n: double(await tools.add({ a: 1, b: 1 })) };
}
//// shape-module-exports
module.exports = async (tools) => {
  const cities = await tools.list_cities();
  return cities.join(" ");
};
//// shape-exports-main
exports.main = async function (tools) {
  return await tools.add({ a: 1, b: 4 });
};
//// shape-use-strict
"use strict";
var cities = await tools.list_cities();
var i, out = [];
for (i = 0; i < cities.length; i++) out.push(cities[i].length);
out;
//// shape-last-if
const n = await tools.add({ a: 1, b: 1 });
if (n > 1) {
  `more: ${n}`;
} else {
  "less";
}
//// shape-hoisted
const result = await summarize(["Oslo", "Bergen"]);
return result;

async function summarize(cities) {
  const parts = [];
  for (const c of cities) parts.push(describe(await tools.weather.current({ city: c })));
  return parts.join("; ");
}
function describe({ city, temperature }) {
  return city + ": " + round(temperature, 1);
}
function round(value, digits) {
  const factor = Math.pow(10, digits || 0);
  return Math.round(value * factor) / factor;
}
//// shape-declared-tools
declare const tools: any;
const r = await tools.add({ a: 1, b: 2 });
return r;
//// shape-declared-interface
interface Tools {
  add(input: { a: number; b: number }): Promise<number>;
}
const api = tools as unknown as Tools;
return await api.add({ a: 3, b: 4 });
//// shape-type-import
import type { Issue } from "./types";
const issues: Issue[] = await tools.github.list_issues({ repo: "acme/house" });
return issues.length;
//// shape-satisfies
const input = { a: 1, b: 2 } satisfies { a: number; b: number };
return await tools.add(input);
//// shape-satisfies-unknown
const config = { repo: "acme/house", state: "open" } satisfies IssueQuery;
return (await tools.github.list_issues(config)).length;
//// shape-object-keys-tools
const names = Object.keys(tools);
return names.includes("add") && typeof tools.github.list_issues === "function";
//// shape-tool-table
const steps = [
  ["add", { a: 1, b: 2 }],
  ["list_cities", {}],
];
const out = [];
for (const [name, args] of steps) out.push(await tools[name](args));
return out;
//// shape-namespace
namespace Format {
  export const money = (n: number) => `€${n.toFixed(2)}`;
}
const order = await tools.shop.get_order({ id: 12 });
return Format.money(order.lines[0].price.amount);
