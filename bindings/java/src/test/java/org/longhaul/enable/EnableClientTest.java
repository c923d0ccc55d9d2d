package org.longhaul.enable;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalLong;
import java.util.Random;
import java.util.Set;
import org.longhaul.enable.EnableException.Kind;

/**
 * Tests against the scripted server; with ENABLE_SERVER=HOST:PORT also against a real one. Each method without arguments is
 * a test.
 */
final class EnableClientTest {
    private static final String SCRIPTED = System.getenv("ENABLE_SCRIPTED");
    private static final String REAL = System.getenv("ENABLE_SERVER");
    /** Long enough for a busy machine; only scenarios without an answer use it up, and they use another one. */
    private static final EnableClient CLIENT = new EnableClient().withTimeout(Duration.ofSeconds(60));
    private static final Set<String> OF_BUFFER = Set.of("negative", "fraction", "text-value", "boolean-value");

    private EnableClientTest() {}

    /** Runs every test. */
    public static void main(String[] arguments) throws IllegalAccessException {
        int failed = 0;
        Method[] tests = EnableClientTest.class.getDeclaredMethods();
        Arrays.sort(tests, Comparator.comparing(Method::getName));
        for (Method test : tests) {
            if (test.getParameterCount() > 0 || test.isSynthetic() || test.getReturnType() != void.class) {
                continue;
            }
            if (test.getName().startsWith("realServer") && REAL == null) {
                System.out.println("SKIPPED " + test.getName() + ": ENABLE_SERVER is not set");
                continue;
            }
            try {
                test.invoke(null);
                System.out.println("ok " + test.getName());
            } catch (InvocationTargetException error) {
                failed++;
                System.out.println("FAILED " + test.getName());
                error.getCause().printStackTrace(System.out);
            }
        }
        System.exit(failed == 0 ? 0 : 1);
    }

    static void everyScenarioHasItsOutcomeForEachCall() throws IOException {
        List<String> scenarios = Files.readAllLines(Path.of(System.getenv("ENABLE_SCENARIOS")));
        check(scenarios.size() > 80, "scenarios");
        for (String line : scenarios) {
            String name = line.split("\t")[0];
            String expected = line.split("\t")[1];
            EnableClient client = expected.equals("timeout") ? CLIENT.withTimeout(Duration.ofMillis(400)) : CLIENT;
            equal(expected, outcome(() -> client.getBufferSize(SCRIPTED, name)), name);
            if (!expected.startsWith("buffer") && !OF_BUFFER.contains(name)) {
                equal(expected, outcome(() -> client.getNetInfo(SCRIPTED, name)), name);
                Question question = new Question().withClient(name);
                equal(expected, outcome(() -> client.getAdvice(SCRIPTED, question)), name);
            }
        }
    }

    static void adviceHasAllMembers() throws IOException {
        Advice advice = CLIENT.getAdvice(SCRIPTED);
        equal("192.0.2.7", advice.client(), "client");
        equal(OptionalLong.of(16_000_000), advice.setBufferBytes(), "set buffer");
        equal(OptionalLong.of(12_500_000_000L), advice.bdpBytes(), "BDP");
        equal(OptionalLong.of(4), advice.streams(), "streams");
        equal(Optional.of("bbr"), advice.congestionControl(), "congestion control");
        equal(OptionalLong.of(10_000_000_000L), advice.paceBps(), "pace");
        equal(OptionalLong.of(9_400_000_000L), advice.expectedBps(), "expected");
        equal(OptionalLong.of(7_100_000_000L), advice.p10Bps(), "p10");
        equal(OptionalLong.of(9_700_000_000L), advice.p90Bps(), "p90");
        equal(OptionalDouble.of(0.0825), advice.rttSeconds(), "round trip");
        equal(OptionalLong.of(10_000_000_000L), advice.bandwidthBps(), "bandwidth");
        equal(OptionalLong.of(10_000_000_000L), advice.downloadBps(), "to the client");
        equal(OptionalLong.of(1_000_000_000L), advice.uploadBps(), "from the client");
        equal(OptionalDouble.of(0.00025), advice.loss(), "loss");
        equal(Optional.of("congestion window"), advice.limitedBy(), "limiter");
        equal(true, advice.isAsymmetric(), "asymmetric");
        equal(0.75, advice.confidence(), "confidence");
        equal(OptionalDouble.of(12.5), advice.ageSeconds(), "age");
        equal(Optional.of("192.0.2.1 (same /24)"), advice.measuredBy(), "measured by");
        equal("round trip × bandwidth, “measured” <today> & kept", advice.why(), "why");
    }

    static void absentMembersAreUnknown() throws IOException {
        Advice advice = CLIENT.getAdvice(SCRIPTED, new Question().withClient("sparse"));
        List<OptionalLong> numbers = List.of(advice.setBufferBytes(), advice.bdpBytes(), advice.streams(),
                advice.paceBps(), advice.expectedBps(), advice.p10Bps(), advice.p90Bps(), advice.bandwidthBps());
        check(numbers.stream().noneMatch(OptionalLong::isPresent), "numbers");
        check(advice.rttSeconds().isEmpty() && advice.loss().isEmpty() && advice.ageSeconds().isEmpty(), "doubles");
        check(advice.congestionControl().isEmpty() && advice.limitedBy().isEmpty(), "texts");
        check(advice.measuredBy().isEmpty() && !advice.isAsymmetric() && advice.confidence() == 0, "others");
        equal("nothing is known yet", advice.why(), "why");
    }

    static void aMemberOfTheWrongTypeIsABadAnswer() {
        EnableException error = failure(() -> CLIENT.getAdvice(SCRIPTED, new Question().withClient("wrong-type")));
        equal(Kind.BAD_ANSWER, error.kind(), "kind");
        check(error.getMessage().contains("streams"), error.getMessage());
    }

    static void aQuestionAboutThisHostTellsItsProcessors() throws IOException {
        String told = CLIENT.getAdvice(SCRIPTED, new Question().withFiles(4242)).why();
        check(told.matches(".*\"processor_bps\":[1-9].*\"processor_cores\":[1-9].*"), told);
        String own = CLIENT.getAdvice(SCRIPTED, new Question().withFiles(4242).withProcessor(5, 1)).why();
        check(own.contains("\"processor_bps\":5,\"processor_cores\":1"), own);
    }

    static void theQuestionAndTheTokenArrive() throws IOException {
        Question question = new Question().withClient("echo").withBytes(1_000_000_000_000L).withFiles(3)
                .forUpload().withMaxReceiveBuffer(6_291_456).withMaxSendBuffer(4_194_304).withMaxSetBuffer(212_992)
                .withClientBps(10_000_000_000L).withMustSetBuffer().withMaxStreams(8);
        String expected = "{\"arguments\":[\"127.0.0.1\",{\"bytes\":1000000000000.0,\"client\":\"echo\","
                + "\"client_bps\":10000000000.0,\"direction\":\"upload\",\"files\":3,"
                + "\"max_receive_buffer\":6291456,\"max_send_buffer\":4194304,\"max_set_buffer\":212992,\"max_streams\":8,"
                + "\"must_set_buffer\":true}],\"authorization\":\"Bearer a-token\",\"request\":\"POST /RPC2 HTTP/1.1\","
                + "\"type\":\"text/xml\"}";
        equal(expected, CLIENT.withToken(" a-token\n").getAdvice(SCRIPTED, question).why(), "what was asked");
    }

    static void netInfoIsATree() throws IOException {
        Map<String, Object> info = CLIENT.getNetInfo(SCRIPTED);
        equal("naïve “path”", info.get("note"), "note");
        Map<?, ?> tests = (Map<?, ?>) info.get("tests");
        equal(Map.of("bandwidth_bps", 1e10), tests.get("bottleneck"), "bottleneck");
        equal(Map.of("hops", List.of("192.0.2.1", "198.51.100.1"), "complete", true), tests.get("route"), "route");
    }

    static void anyMethodCanBeCalled() throws IOException {
        methodsOf(SCRIPTED);
    }

    static void aChangeNeedsTheToken() throws IOException {
        equal(true, CLIENT.withToken("a-token").call(SCRIPTED, "EnableAddHost", "192.0.2.1"), "with the token");
        equal(403, failure(() -> CLIENT.call(SCRIPTED, "EnableAddHost", "192.0.2.1")).code(), "without it");
    }

    static void aRefusalIsShownWithoutControlCharacters() {
        EnableException error = failure(() -> CLIENT.getBufferSize(SCRIPTED, "fault-negative"));
        equal(-32601, error.code(), "code");
        check(error.getMessage().endsWith("refused EnableGetBufferSize: no such method <a> & “b” \\u{9b}31m"),
                error.getMessage());
    }

    static void nobodyListeningAndNobodyAnsweringAreToldApart() throws IOException {
        String address;
        try (ServerSocket silent = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            address = "127.0.0.1:" + silent.getLocalPort();
            EnableClient hasty = CLIENT.withTimeout(Duration.ofMillis(100));
            EnableException error = failure(() -> hasty.getBufferSize(address));
            equal(Kind.TIMED_OUT, error.kind(), "kind");
            check(error.getMessage().contains("within 100 ms"), error.getMessage());
        }
        equal(Kind.NO_SERVER, failure(() -> CLIENT.getBufferSize(address)).kind(), "kind");
    }

    static void aServerIsAHostWithOrWithoutPortAndScheme() {
        Map<String, String> servers = Map.of("data.example.org", "data.example.org:2812", "data:99", "data:99",
                "http://data:99/", "data:99", "::1", "[::1]:2812", "[2001:db8::1]:7", "[2001:db8::1]:7",
                "[2001:db8::1]", "[2001:db8::1]:2812", "192.0.2.1:7", "192.0.2.1:7", "::ffff:192.0.2.1",
                "[::ffff:192.0.2.1]:2812");
        servers.forEach((given, expected) -> equal(expected, new ServerAddress(given, 2812).toString(), given));
        for (String given : List.of("", "a b", "host:port", "host:99999", "host:0", "https://host", "host/path",
                "a\r\nb", "[host]:1", "[1]", "a:1:2", "user@host", "host\n", "1::2::3", ":::", "1:2:3:4:5:6:7:8:9",
                "::12345", "x".repeat(254))) {
            illegal(() -> new ServerAddress(given, 2812), given);
        }
    }

    static void argumentsOutOfRangeAreRefusedHere() {
        illegal(() -> new Question().withBytes(-1), "negative");
        illegal(() -> new Question().withBytes(1L << 53), "large");
        illegal(() -> CLIENT.withPort(0), "port");
        illegal(() -> CLIENT.withTimeout(Duration.ZERO), "time-out");
        illegal(() -> CLIENT.withToken("a\r\nX-Field: b"), "token");
        illegal(() -> CLIENT.call("127.0.0.1:1", "m", "a\u0001"), "control character");
        illegal(() -> CLIENT.call("127.0.0.1:1", "m", new Object()), "type");
        illegal(() -> CLIENT.call("127.0.0.1:1", "m", "x".repeat(8192)), "long");
    }

    static void changedAnswersAreReadOrMalformed() {
        byte[] good = ("<?xml version='1.0'?><methodResponse><params><param><value><struct><member><name>why</name><value>"
                + "<string>&#xe9; &amp;</string></value></member><member><name>rates</name><value><array><data><value><int>1"
                + "</int></value><value><double>2.5</double></value><value>x</value></data></array></value></member>"
                + "</struct></value></param></params></methodResponse>").getBytes(StandardCharsets.UTF_8);
        String[] pieces = {"<value>", "</value>", "<i8>99999999999999999999</i8>", "&#x", "<![CDATA[", "<!--", "<?", "/>",
            "<!DOCTYPE a [", "&amp", "</struct>"};
        PrintStream standardError = System.err;
        ByteArrayOutputStream written = new ByteArrayOutputStream();
        System.setErr(new PrintStream(written, true));
        Random random = new Random(14);
        for (int turn = 0; turn < 3000; turn++) {
            StringBuilder text = new StringBuilder(new String(good, StandardCharsets.ISO_8859_1));
            for (int change = random.nextInt(4); change >= 0; change--) {
                int start = random.nextInt(text.length() + 1);
                int end = Math.min(text.length(), start + random.nextInt(12));
                String piece = random.nextBoolean() ? pieces[random.nextInt(pieces.length)]
                        : String.valueOf((char) random.nextInt(256));
                text.replace(start, end, piece);
            }
            try {
                XmlRpcReader.read(text.toString().getBytes(StandardCharsets.ISO_8859_1));
            } catch (MalformedAnswerException | FaultException expected) {
                check(expected.getMessage() != null, "message");
            }
        }
        System.setErr(standardError);
        equal("", written.toString(), "standard error");
    }

    static void realServerConforms() throws IOException {
        Advice advice = CLIENT.getAdvice(REAL, new Question().withBytes(10_000_000_000L));
        check(!advice.client().isEmpty() && !advice.why().isEmpty(), "client and reason");
        check(advice.confidence() >= 0 && advice.confidence() <= 1, "confidence");
        String buffer = outcome(() -> CLIENT.getBufferSize(REAL));
        check(buffer.matches("buffer=[1-9][0-9]*|refused=404"), buffer);
        String info = outcome(() -> CLIENT.getNetInfo(REAL));
        check(info.startsWith("buffer={") || info.equals("refused=404"), info);
        methodsOf(REAL);
        String change = outcome(() -> CLIENT.call(REAL, "EnableRemoveHost", "192.0.2.1"));
        check(change.matches("refused=40[13]"), change);
    }

    private static void methodsOf(String server) throws IOException {
        List<?> methods = (List<?>) CLIENT.call(server, "system.listMethods");
        check(methods.containsAll(List.of("EnableGetBufferSize", "EnableGetNetInfo", "EnableGetAdvice")), "methods");
        EnableException error = failure(() -> CLIENT.call(server, "EnableNoSuchMethod"));
        equal(EnableException.NO_METHOD, error.code(), "code");
    }

    /** A question that may fail. */
    private interface Asked {
        Object answer() throws EnableException;
    }

    /** The outcome of a question in the words of the scenarios. */
    private static String outcome(Asked question) {
        try {
            return "buffer=" + question.answer();
        } catch (EnableException error) {
            switch (error.kind()) {
                case REFUSED:
                    return "refused=" + error.code();
                case BAD_ANSWER:
                    return "bad";
                case TIMED_OUT:
                    return "timeout";
                default:
                    return "no-server";
            }
        }
    }

    private static EnableException failure(Asked question) {
        try {
            throw new AssertionError("unexpected answer: " + question.answer());
        } catch (EnableException error) {
            return error;
        }
    }

    private static void illegal(Asked question, String what) {
        try {
            question.answer();
        } catch (IllegalArgumentException expected) {
            return;
        } catch (EnableException error) {
            throw new AssertionError(what, error);
        }
        throw new AssertionError("accepted: " + what);
    }

    private static void equal(Object expected, Object found, String what) {
        check(Objects.equals(expected, found), what + ": expected " + expected + ", got " + found);
    }

    private static void check(boolean condition, String what) {
        if (!condition) {
            throw new AssertionError(what);
        }
    }
}
