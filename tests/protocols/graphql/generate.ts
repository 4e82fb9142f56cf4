// Prints the types that GraphQL Code Generator makes of a schema and an operation.
import { codegen } from "@graphql-codegen/core";
import * as operations from "@graphql-codegen/typescript-operations";
import { buildSchema, parse, printSchema } from "graphql";

const schema = buildSchema(await Deno.readTextFile("schema.graphql"));
const text = await codegen({
  schema: parse(printSchema(schema)),
  documents: [{ document: parse("query Move($p: PointInput!) { move(point: $p) { x tags side } }") }],
  filename: "types.ts",
  config: {},
  plugins: [{ operations: {} }],
  // deno-lint-ignore no-explicit-any
  pluginMap: { operations } as any,
});
console.log(text);
