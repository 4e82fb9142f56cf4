// Pays all that is unpaid.

const outcomes = {};
for (const { number, amount_cents, currency, paid } of await tools.list_invoices()) {
  if (paid) continue;
  const invoice = `${number}, ${(amount_cents / 100).toFixed(2)} ${currency}`;
  try {
    await tools.pay_invoice({ number, amount_cents });
    outcomes[invoice] = "paid";
  } catch (error) {
    outcomes[invoice] = `${error.code}: ${error.message}`;
  }
}
return outcomes;
