package org.longhaul.enable;

import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;

/** Writes the body of an XML-RPC call. */
final class XmlRpcWriter {
    /** Longest body that is sent, bytes. */
    private static final int MAX_BODY = 8192;

    private XmlRpcWriter() {}

    /**
     * The body of a call.
     *
     * @throws IllegalArgumentException if XML cannot hold an argument, or the body is too long
     */
    static byte[] call(String method, List<?> arguments) {
        StringBuilder out = new StringBuilder("<?xml version=\"1.0\"?>\n<methodCall><methodName>");
        escape(out, method);
        out.append("</methodName><params>");
        for (Object argument : arguments) {
            out.append("<param>");
            value(out, argument);
            out.append("</param>");
        }
        out.append("</params></methodCall>\n");
        byte[] body = out.toString().getBytes(StandardCharsets.UTF_8);
        if (body.length > MAX_BODY) {
            throw new IllegalArgumentException("the arguments are longer than " + MAX_BODY + " bytes");
        }
        return body;
    }

    private static void value(StringBuilder out, Object value) {
        out.append("<value>");
        if (value instanceof String) {
            out.append("<string>");
            escape(out, (String) value);
            out.append("</string>");
        } else if (value instanceof Boolean) {
            out.append("<boolean>").append((Boolean) value ? 1 : 0).append("</boolean>");
        } else if (value instanceof Integer || value instanceof Long) {
            long number = ((Number) value).longValue();
            // XML-RPC has no larger integer than 32 bits.
            String type = number == (int) number ? "int" : "double";
            out.append('<').append(type).append('>').append(number).append("</").append(type).append('>');
        } else if (value instanceof Double && Double.isFinite((Double) value)) {
            // Without an exponent, which XML-RPC does not know.
            out.append("<double>").append(new BigDecimal(value.toString()).toPlainString()).append("</double>");
        } else if (value instanceof Map) {
            out.append("<struct>");
            ((Map<?, ?>) value).forEach((name, member) -> {
                out.append("<member><name>");
                escape(out, String.valueOf(name));
                out.append("</name>");
                value(out, member);
                out.append("</member>");
            });
            out.append("</struct>");
        } else {
            throw new IllegalArgumentException("XML-RPC cannot carry the type or the value of an argument");
        }
        out.append("</value>");
    }

    private static void escape(StringBuilder out, String text) {
        text.codePoints().forEach(point -> {
            boolean surrogate = point >= 0xd800 && point <= 0xdfff;
            if ((point < ' ' && point != '\t' && point != '\n' && point != '\r') || surrogate || point == 0xfffe
                    || point == 0xffff) {
                throw new IllegalArgumentException("XML cannot carry the control characters of an argument");
            }
            switch (point) {
                case '<':
                    out.append("&lt;");
                    break;
                case '>':
                    out.append("&gt;");
                    break;
                case '&':
                    out.append("&amp;");
                    break;
                default:
                    out.appendCodePoint(point);
            }
        });
    }
}
