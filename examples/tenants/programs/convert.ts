// What is unpaid, in euros. The rates may be asked so often only: a call that comes too early waits and tries again.

let waited = 0;

async function rateOf(currency: string): Promise<number> {
  if (currency === "EUR") return 1;
  try {
    return await tools.exchange_rate({ currency });
  } catch (error) {
    if (error.code !== "rate_limited") throw error;
    waited++;
    await new Promise((wake) => setTimeout(wake, error.retryAfterSeconds * 1000));
    return await tools.exchange_rate({ currency });
  }
}

const unpaid = (await tools.list_invoices()).filter(({ paid }) => !paid);
const cents = await Promise.all(
  unpaid.map(async ({ amount_cents, currency }) => amount_cents / (await rateOf(currency))),
);
const euros = Math.round(cents.reduce((sum, each) => sum + each, 0)) / 100;
return { euros, currencies: new Set(unpaid.map(({ currency }) => currency)).size, waited };
