package org.longhaul.enable;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Host and port of a server. */
final class ServerAddress {
    private static final Pattern FORM = Pattern.compile(
            "(?:http://)?(?:\\[([0-9A-Fa-f:.]+)\\]|([A-Za-z0-9._-]{1,253}))(?::([0-9]{1,5}))?/?");
    private static final Pattern BARE = Pattern.compile("(?:http://)?([0-9A-Fa-f:.]+)/?");

    /** Name or address, without brackets. */
    final String host;
    final int port;

    /**
     * Reads HOST, HOST:PORT, [ADDRESS]:PORT or http://HOST:PORT; {@code defaultPort} is used if the name has none.
     *
     * @throws IllegalArgumentException if the text is no server
     */
    ServerAddress(String text, int defaultPort) {
        Matcher form = FORM.matcher(text);
        Matcher bare = BARE.matcher(text);
        // An IPv6 address without brackets has colons, but no port.
        if (bare.matches() && isIpv6(bare.group(1))) {
            host = bare.group(1);
            port = defaultPort;
        } else if (form.matches() && (form.group(1) == null || isIpv6(form.group(1)))) {
            host = form.group(1) != null ? form.group(1) : form.group(2);
            port = form.group(3) != null ? Integer.parseInt(form.group(3)) : defaultPort;
        } else {
            throw new IllegalArgumentException("no advice server: name a host, HOST:PORT, or http://HOST:PORT");
        }
        if (port < 1 || port > 65_535) {
            throw new IllegalArgumentException("no port of an advice server: " + port);
        }
    }

    @Override
    public String toString() {
        return host.contains(":") ? "[" + host + "]:" + port : host + ":" + port;
    }

    /** RFC 4291, section 2.2: eight groups, of which one "::" stands for one or more; the last two may be an IPv4 address. */
    private static boolean isIpv6(String text) {
        String digits = text;
        int lastColon = text.lastIndexOf(':');
        if (lastColon < 0) {
            return false;
        }
        if (text.indexOf('.') >= 0) {
            String octet = "(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])";
            if (!text.substring(lastColon + 1).matches(octet + "(\\." + octet + "){3}")) {
                return false;
            }
            digits = text.substring(0, lastColon + 1) + "0:0";
        }
        int gap = digits.indexOf("::");
        if (gap < 0) {
            return groups(digits) == 8;
        }
        int before = groups(digits.substring(0, gap));
        int after = groups(digits.substring(gap + 2));
        return before >= 0 && after >= 0 && before + after <= 7;
    }

    /** Number of groups of hexadecimal digits between colons; -1 if the text has another form. */
    private static int groups(String text) {
        if (text.isEmpty()) {
            return 0;
        }
        return text.matches("[0-9A-Fa-f]{1,4}(:[0-9A-Fa-f]{1,4})*") ? text.split(":").length : -1;
    }
}
