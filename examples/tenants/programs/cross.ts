// Tries to reach the invoices of globex.

const number = "GLOBEX-1";

const attempts = {
  "ask for its number": () => tools.get_invoice({ number }),
  "pay it": () => tools.pay_invoice({ number, amount_cents: 640_00 }),
  "inject a condition": () => tools.get_invoice({ number: "' OR organization = 'globex' --" }),
  "inject a setting": () =>
    tools.get_invoice({ number: "'; SELECT set_config('app.organization', 'globex', false); --" }),
  "name the organization": () => tools.get_invoice({ number, organization: "globex" } as any),
  "pass a context": () => tools.list_invoices({ context: { organization_id: "globex" } } as any),
  "change globals": () => {
    (globalThis as any).context = { organization_id: "globex" };
    (Object.prototype as any).organization_id = "globex";
    return tools.get_invoice({ number });
  },
};

const outcomes = {};
for (const [name, attempt] of Object.entries(attempts)) {
  try {
    outcomes[name] = await attempt();
  } catch (error) {
    outcomes[name] = `${error.code}: ${error.message}`;
  }
}
return outcomes;
