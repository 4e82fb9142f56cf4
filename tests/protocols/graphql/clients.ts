// Runs operations by three clients of npm, and prints their results as lines of JSON.
import { GraphQLClient } from "graphql-request";
import { Client, fetchExchange } from "@urql/core";
import { createClient } from "graphql-sse";

const { url, token, other } = JSON.parse(Deno.args[0]);
const headers = { authorization: `Bearer ${token}` };

const QUERY = "query($p: PointInput!) { move(point: $p, by: 2) { x tags side } }";
const MUTATION = "mutation { add(a: 1, b: 2) refuse }";
const variables = { p: { x: 3, tags: ["t"], side: "left" } };

function print(name: string, value: unknown): void {
  console.log(JSON.stringify([name, value]));
}

// deno-lint-ignore no-explicit-any
function codes(errors: any[] | undefined): string[] {
  return (errors ?? []).map((error) => error.extensions.code);
}

const request = new GraphQLClient(url, { headers });
print("graphql-request query", await request.request(QUERY, variables));
// deno-lint-ignore no-explicit-any
const failed: any = await request.request(MUTATION).catch((error) => error);
print("graphql-request mutation", [failed.response.data, codes(failed.response.errors)]);
// deno-lint-ignore no-explicit-any
const refused: any = await new GraphQLClient(url, { headers: { authorization: `Bearer ${other}` } }).request(QUERY, variables)
  .catch((error) => error);
print("graphql-request refused", [refused.response.status, codes(refused.response.errors)]);

const urql = new Client({ url, exchanges: [fetchExchange], fetchOptions: { headers }, preferGetMethod: false });
print("urql query", (await urql.query(QUERY, variables).toPromise()).data);
const urqlGet = new Client({ url, exchanges: [fetchExchange], fetchOptions: { headers }, preferGetMethod: true });
print("urql get", (await urqlGet.query("{ large(digits: 20) }", {}).toPromise()).data);
const mutation = await urql.mutation(MUTATION, {}).toPromise();
print("urql mutation", [mutation.data, codes(mutation.error?.graphQLErrors)]);

const sse = createClient({ url, headers });
const items: unknown[] = [];
for await (const result of sse.iterate({ query: "subscription { numbers(n: 3) }" })) items.push(result.data);
print("graphql-sse items", items);
const endless = sse.iterate({ query: "subscription { ticks }" });
print("graphql-sse first", (await endless.next()).value.data);
await endless.return?.();
Deno.exit(0);
