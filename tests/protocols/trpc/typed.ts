import { createTRPCClient, httpLink } from "@trpc/client";
import type { AppRouter } from "./router.d.ts";

const client = createTRPCClient<AppRouter>({ links: [httpLink({ url: "http://localhost" })] });

export async function use(): Promise<number> {
  const point = await client.move.query({ point: { x: 1 } });
  const x: number = point.x;
  const sum: number = await client.add.mutate({ a: 1, b: 2 });
  const values: Record<string, unknown> = await client.odd_things.values.query();
  client.numbers.subscribe({ n: 3 }, { onData: (item) => item });
  // @ts-expect-error: a number is needed
  await client.add.mutate({ a: "1", b: 2 });
  // @ts-expect-error: it changes something
  await client.add.query({ a: 1, b: 2 });
  // @ts-expect-error: there is no such tool
  await client.absent.query();
  return x + sum + Object.keys(values).length;
}
