import JSZip from "jszip";
import { writeFile } from "fs/promises";

const orders = await (await fetch(`${process.env.ORDERS}/orders`)).json();
const rows = orders.map(({ id, region, amount }) => `${id},${region},${amount}`);
const zip = new JSZip();
zip.file("orders.csv", ["id,region,amount", ...rows].join("\n"));
await writeFile("orders.zip", await zip.generateAsync({ type: "nodebuffer", compression: "DEFLATE" }));
return `${orders.length} orders`;
