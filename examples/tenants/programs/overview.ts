const invoices = await tools.list_invoices();
const unpaid = invoices.filter(({ paid }) => !paid);
return { numbers: invoices.map(({ number }) => number), unpaid: unpaid.length };
