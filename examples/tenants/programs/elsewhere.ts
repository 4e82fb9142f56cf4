// Runs in Deno outside of corral's sandbox: it has an address and a token, and its calls travel over HTTP.

const { connectFromEnvironment } = await import(`${Deno.env.get("CORRAL_URL")}/corral.mjs`);
const { tools, close } = connectFromEnvironment();

const invoices = await tools.list_invoices();
console.log(invoices.map(({ number }) => number).join(" "));
try {
  await tools.get_invoice({ number: "GLOBEX-1" });
} catch (error) {
  console.log(`${error.code}: ${error.message}`);
}
close();
